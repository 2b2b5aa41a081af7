"""The ratios to FullKV in a record, by which tables, figures and pages compare settings (docs/reserve-ratio.md)."""

RATIOS = {
    "r": "reserve ratio by SpindleKV's formula 15",
    "r_bytes": "bytes stored of the prompt over FullKV's",
    "r_bytes_16": "bytes stored of the prompt over FullKV's, with 16 bits for each of the model's numbers",
    "r_mean": "bytes held over FullKV's, summed over the passes after prefill",
    "r_peak": "most bytes held, prefill included, over FullKV's at the end",
    "r_decode_peak": "most bytes held after prefill over FullKV's at the end",
    "r_end": "bytes held after the last pass over FullKV's",
    "r_read": "bytes that attention reads over FullKV's, summed over the passes after prefill",
}
