"""PyramidInfer read plainly, as the oracle of its tests."""

import math

import torch
from transformers import DynamicCache

from kvbench.methods import PyramidInfer


class Oracle:
    """PyramidInfer on transformers' eager attention: whole matrices, explicit masks, a buffer of recent rows."""

    def __init__(self, model, method: PyramidInfer, decay: float):
        self.model, self.method, self.decay = model, method, decay
        self.cache, self.entered, self.rows, self.generated = DynamicCache(), [], [], []
        self.weights = {}
        for index, layer in enumerate(model.model.layers):
            layer.self_attn.register_forward_hook(lambda _, __, out, index=index: self.weights.update({index: out[1]}))

    def layer(self, index, hidden, positions, mask):
        out = self.model.model.layers[index](
            hidden,
            attention_mask=mask,
            position_ids=positions[None],
            position_embeddings=self.model.model.rotary_emb(hidden, positions[None]),
            past_key_values=self.cache,
            use_cache=True,
        )
        return out, self.weights[index][0].mean(dim=0)  # [q, len], all heads averaged

    def rho(self, index, least):
        return (1 - least) * (math.cos(math.pi * index / len(self.model.model.layers)) + 1) / 2 + least

    @torch.inference_mode()
    def read(self, ids):
        m, n = self.method, len(ids)
        self.recent = int(m.recent_ratio * n)
        tail = 1 + self.recent
        hidden, positions = self.model.model.embed_tokens(ids[None]), torch.arange(n)
        for index in range(len(self.model.model.layers)):
            length = len(positions)
            self.entered.append(positions.tolist())
            mask = torch.full((length, length), torch.finfo(hidden.dtype).min, dtype=hidden.dtype).triu(1)[None, None]
            hidden, attention = self.layer(index, hidden, positions, mask)
            self.rows.append([])
            rho = self.rho(index, self.decay) if m.schedule == "cosine" else self.decay
            keep = int((length - tail) * rho)
            if index % m.interval or keep <= m.min_ctx:
                continue
            row_weights = torch.tensor([1 + (m.distance_weight - 1) * i / max(tail - 1, 1) for i in range(tail)])
            score = (attention[-tail:, :-tail] * row_weights[:, None]).mean(dim=0).tolist()
            ranked = sorted(range(length - tail), key=lambda j: (j >= m.sinks, -score[j] if j >= m.sinks else 0, j))
            chosen = sorted(ranked[:keep]) + list(range(length - tail, length))
            hidden, positions = hidden[:, chosen], positions[chosen]
        self.n = n
        return self.model.lm_head(self.model.model.norm(hidden))[0, -1]

    @torch.inference_mode()
    def step(self, token, at):
        hidden, positions = self.model.model.embed_tokens(token.view(1, 1)), torch.tensor([at])
        for index in range(len(self.model.model.layers)):
            hidden, attention = self.layer(index, hidden, positions, None)
            if self.method.decode == "compress":
                self.shrink(index, attention[0])
        return self.model.lm_head(self.model.model.norm(hidden))[0, -1]

    def shrink(self, index, row):
        """Rows are kept as vectors from the end of the cache backwards, so that columns stay aligned."""
        m, tail, block = self.method, 1 + self.recent, self.method.exceed_length
        store = self.cache.layers[index]
        rows = [torch.cat([old, torch.zeros(1)]) for old in self.rows[index]] + [row]
        pending = self.pending.setdefault(index, 0) + 1
        if pending == tail + block:
            end = store.keys.shape[2] - tail
            recent = torch.stack([r[end - block : end] for r in rows[-tail:]])
            weights = torch.linspace(1.0, m.distance_weight, tail)
            score = (recent * weights[:, None]).mean(dim=0).tolist()
            keep = max(int(block * m.gen_compress_ratio * self.rho(index, m.gen_decay_ratio)), 1)
            best = sorted(sorted(range(block), key=lambda j: (-score[j], j))[:keep])
            length = store.keys.shape[2]
            index_kept = torch.tensor([*range(end - block), *(end - block + j for j in best), *range(end, length)])
            store.keys, store.values = store.keys[:, :, index_kept], store.values[:, :, index_kept]
            rows = [r[index_kept] for r in rows]
            pending = tail
        self.rows[index], self.pending[index] = rows, pending

    def tokens(self, ids, steps):
        self.pending = {}
        logits = self.read(ids)
        tokens = [logits.argmax()]
        while len(tokens) < steps:
            tokens.append(self.step(tokens[-1], self.n + len(tokens) - 1).argmax())
        return [int(token) for token in tokens]
