"""What the tests of the codebook cache share: layers with something to merge, what a cache holds, attention over it."""

import torch
import torch.nn.functional as F

from kvbench.methods.selection import Selection
from kvbench.methods.spindlekv.ops.codebook_layout import KEYS, VALUES, view_references
from kvbench.methods.spindlekv.ops.rope_table import rope_table
from kvbench.ops.bits import unpack_bits
from kvbench.ops.rope import Rope
from tests.support.tiny import random_layer, tiny_model

ROPE = Rope.from_model(tiny_model())


def similar_layer(n=60, heads=6, kv_heads=2, dtype=torch.float32, seed=0, **more):
    """A layer whose vectors lie near a few directions, so that books are smaller than what they hold."""
    layer = random_layer(heads, kv_heads, n, dtype=dtype, seed=seed, rope=ROPE, **more)
    generator = torch.Generator().manual_seed(seed)
    for x, rotate in ((layer.keys, True), (layer.values, False)):
        centres = torch.randn(6, x.shape[2], generator=generator)
        plain = centres[torch.randint(6, x.shape[:2], generator=generator)] + 0.2 * x.float()
        x.copy_(ROPE.rotate(plain, torch.arange(n)) if rotate else plain)
    return layer


def mixed_selection(layer, k, seed=0):
    """Every query head keeps k tokens of its own and the last 8."""
    generator = torch.Generator().manual_seed(seed)
    context = layer.n - 8
    rows = [torch.randperm(context, generator=generator)[: k - 8].sort().values for _ in range(6)]
    tail = torch.arange(context, layer.n).expand(6, 8)
    return Selection(torch.cat([torch.stack(rows), tail], dim=1), k)


def book_sizes(cache):
    """Entries of the books of keys and of those of values, once per book."""
    return cache.k.sizes.tolist(), cache.v.sizes.tolist()


def stream_sizes(cache, side):
    """Entries of the book of each stream."""
    sizes = side.sizes.tolist()
    streams = len(cache.places)
    return [sizes[stream * len(sizes) // streams] for stream in range(streams)]


def references(cache, side, stream):
    """The references of one stream, those of the prompt first."""
    place = cache.places[stream]
    _, offset, width = place[KEYS : KEYS + 3] if side is cache.k else place[VALUES : VALUES + 3]
    return view_references(side.references, offset, width, place.tokens + cache.decoded)


def _coded(cache, side, stream):
    place = cache.places[stream]
    book = place.key_book if side is cache.k else place.value_book
    vectors = side.entries[book:][references(cache, side, stream).long()].float()
    if side.magnitudes is None:
        return vectors
    return vectors * side.magnitudes[place.start : place.start + len(vectors), None].float()


def read_keys(cache):
    """Per stream the keys that attention reads, after RoPE: coded ones, then raw ones [len, head_dim]."""
    books = cache
    dtype, back = books.raw.keys.dtype, rope_table(books.rope, books.raw.keys.shape[1]).order.argsort()
    keys = []
    for stream, place in enumerate(cache.places):
        prompt = torch.arange(place.tokens)
        if place.positions >= 0:
            prompt = cache.streams.positions[place.positions :][: place.tokens].long()
        positions = torch.cat([prompt, torch.arange(cache.prompt, cache.prompt + cache.decoded)])
        rotated = cache.rope.rotate(_coded(cache, cache.k, stream)[None, :, back], positions)[0]
        keys.append(torch.cat([rotated.to(dtype), cache.raw.keys[place.raw :][: place.window, back]]))
    return keys


def read_values(cache):
    """Per stream the values that attention reads, in the order of `read_keys`."""
    dtype = cache.raw.values.dtype
    return [
        torch.cat([_coded(cache, cache.v, stream).to(dtype), cache.raw.values[place.raw :][: place.window]])
        for stream, place in enumerate(cache.places)
    ]


def masks(cache, query_heads=6):
    """Per stream which query head sees which of `read_keys`: bool [group, len], None for all."""
    group = query_heads // len(cache.places)
    found = []
    for place in cache.places:
        if place.bits < 0:
            found.append(None)
            continue
        bits = cache.streams.bits[place.bits :][: group * -(-place.tokens // 8)].view(group, -1)
        later = cache.decoded + place.window  # decoded and raw tokens: all see them
        found.append(F.pad(unpack_bits(bits, place.tokens), (0, later), value=True))
    return found


def attention_over(cache, query, scaling, tokens=None):
    """Attention of every query head over what the cache says its K and V are, written out."""
    keys, values, seen = read_keys(cache), read_values(cache), masks(cache, query.shape[1])
    per_stream = query.shape[1] // len(keys)
    out = torch.empty_like(query)
    for head in range(query.shape[1]):
        stream = head // per_stream
        k, v = keys[stream], values[stream]
        if seen[stream] is not None:
            k, v = k[seen[stream][head % per_stream]], v[seen[stream][head % per_stream]]
        assert tokens is None or len(k) == tokens
        out[0, head] = (query[0, head] @ k.T * scaling).softmax(dim=-1) @ v
    return out


def decoded(cache, layer, count, seed=7):
    """Feed `count` tokens, alternating copies of prompt vectors (at new positions) and fresh ones."""
    generator = torch.Generator().manual_seed(seed)
    source = ROPE.rotate(layer.keys, -torch.arange(layer.n))
    fed = []
    for step in range(count):
        position = torch.tensor([cache.seen])
        if step % 2:
            plain, value = torch.randn(2, 2, 1, layer.keys.shape[2], generator=generator)
        else:
            plain, value = 1.7 * source[:, step : step + 1], 0.4 * layer.values[:, step : step + 1]
        key = ROPE.rotate(plain, position)
        cache.update(key[None], value[None])
        fed.append((plain, value, key))
    return fed
