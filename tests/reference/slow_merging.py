"""Pooling-merge as one reads it: the oracle of its tests."""

import torch


class SlowMerge:
    """The rule as one reads it: one merge at a time over a list of entries, one head at a time."""

    def __init__(self, layer, method, limit, recent):
        self.rule, self.limit, self.recent, self.scaling = method, limit, recent, layer.scaling
        self.heads = layer.num_key_value_heads
        self.entries, self.place = [], 0
        for j in range(layer.n):
            votes = [self.votes(layer, method.window, head, j) for head in range(self.heads)]
            self.entries.append({"k": layer.keys[:, j], "v": layer.values[:, j], "votes": votes, "count": 1})
        self.shrink()

    def votes(self, layer, window, head, j):
        """What the last `window` queries of the head's group give to key j."""
        total, n, group = 0.0, layer.n, layer.num_attention_heads // self.heads
        for query in layer.queries[head * group : (head + 1) * group]:
            for i in range(max(j, n - min(window, len(query))), n):
                logits = layer.keys[head, : i + 1].float() @ query[len(query) - n + i].float() * layer.scaling
                total += logits.softmax(0)[j].item()
        return total

    def shrink(self):
        rule = self.rule
        while len(self.entries) > self.limit:
            if self.place + rule.group > len(self.entries) - rule.sinks - self.recent:
                self.place = 0
                continue
            at = rule.sinks + self.place
            self.entries[at : at + rule.group] = [self.pool(self.entries[at : at + rule.group])]
            self.place += 1

    def pool(self, members):
        count = sum(entry["count"] for entry in members)
        heads = [self.pool_head(members, head) for head in range(self.heads)]
        k, v, votes = zip(*heads, strict=True)
        return {"k": torch.stack(k), "v": torch.stack(v), "votes": list(votes), "count": count}

    def pool_head(self, members, head):
        k, v = [e["k"][head] for e in members], [e["v"][head] for e in members]
        votes = [e["votes"][head] for e in members]
        if self.rule.pooling == "mean":
            weights = [e["count"] if self.rule.weighted else 1 for e in members]
            mean = [sum(w * x.float() for w, x in zip(weights, xs, strict=True)) / sum(weights) for xs in (k, v)]
            return mean[0].to(k[0].dtype), mean[1].to(k[0].dtype), 0.0
        if self.rule.pooling == "max":
            return torch.stack(k).max(0).values, torch.stack(v).max(0).values, 0.0
        if self.rule.pooling == "max_norm":
            norms = [x.float().norm().item() for x in k]
            winner = norms.index(max(norms))
        else:
            winner = max(range(len(votes)), key=lambda i: (votes[i], i))
        return k[winner], v[winner], votes[winner]

    def step(self, key, value, query):
        """A decoded token: stored, older ones merged, the query's attention added to the votes."""
        self.entries.append({"k": key[0, :, 0], "v": value[0, :, 0], "votes": [0.0] * self.heads, "count": 1})
        self.shrink()
        grouped = query[0, :, 0].unflatten(0, (self.heads, -1))
        for head in range(self.heads):
            keys = torch.stack([e["k"][head] for e in self.entries]).float()
            for q in grouped[head]:
                for entry, p in zip(self.entries, (keys @ q.float() * self.scaling).softmax(0), strict=True):
                    entry["votes"][head] += p.item()

    def tensors(self):
        return [torch.stack([entry[name] for entry in self.entries], dim=1) for name in ("k", "v")]
