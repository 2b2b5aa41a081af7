"""The result of a check as Markdown: what failed, what was equal, the speed tables, and how far the goals are."""

from pathlib import Path

COLUMNS = (
    "compress s",
    "compress / prefill",
    "decode tokens/s",
    "over FullKV",
    "as a graph",
    "fused",
    "ms a token",
    "of these in kernels",
    "cache MiB",
    "largest batch",
)


def markdown(result: dict) -> str:
    machine, rows, parts = result["machine"], result["rows"], [f"# kvbench on {result['machine']['name']}", ""]
    parts += [f"- {key}: {value}" for key, value in machine.items() if key != "name"]
    parts += ["", "## Stages", "", *(f"- {line}" for line in result["stages"])]
    parts += ["", "## Failed", "", *([f"- {line}" for line in result["failed"]] or ["Nothing."])]
    if result["left"]:
        parts += ["", f"Left for another run, for there was no time: {', '.join(result['left'])}."]
    parts += ["", "## Equal to the CPU", "", *presets(of_kind(rows, "preset")), "", "## Operators and references", ""]
    parts += operators([*of_kind(rows, "preset").values(), *of_kind(rows, "heads").values()])
    parts += ["", "## Batches, another GPU, long prompts", "", *others(rows)]
    parts += ["", "## Bytes: allocated over counted", ""]
    parts += [f"- {name}: {key_values(row)}" for name, row in of_kind(rows, "bytes").items()]
    lengths = list(of_kind(rows, "speed").values())
    for length in lengths:
        parts += ["", f"## {length.get('n')} tokens", "", *speed(length)]
    parts += ["", "## Goals", "", "| goal | asked | found |", "| :-- | --: | --: |"]
    parts += [f"| {name} | {asked} | {measured} |" for name, asked, measured in goals(lengths)]
    return "\n".join(parts) + "\n"


def of_kind(rows: dict[str, dict], kind: str) -> dict[str, dict]:
    """The rows KIND/NAME by NAME."""
    return {name.partition("/")[2]: row for name, row in rows.items() if name.startswith(f"{kind}/")}


def operators(rows: list[dict]) -> list[str]:
    """The worst of every operator over all presets, heads and dtypes."""
    worst: dict[str, dict] = {}
    for row in rows:
        for compared in row.values():
            for name, operator in compared.items() if isinstance(compared, dict) else ():
                known = worst.setdefault(name, dict.fromkeys(operator, 0))
                worst[name] = {
                    key: known[key] + operator[key] if key == "calls" else max(known[key], operator[key])
                    for key in known
                }
    lines = ["| operator | calls | largest difference | over the limit | integers that differ |"]
    lines += ["| :-- | --: | --: | --: | --: |"]
    return lines + [
        f"| {name} | {operator['calls']} | {operator['difference']:.1e} | {operator['over_allowed']:.2f} | "
        f"{operator['integers']:.1%} |"
        for name, operator in sorted(worst.items())
    ]


def others(rows: dict[str, dict]) -> list[str]:
    lines = []
    for dtype, row in of_kind(rows, "batch").items():
        lines.append(f"- a batch in {dtype}: {row.get('error') or row['different'] or tokens_alone(row)}")
    for dtype, row in of_kind(rows, "generate").items():
        tokens_of = "FullKV" if row.get("tokens") == row.get("generated") else "another close token than FullKV"
        lines.append(f"- transformers' generate in {dtype}: {row.get('error') or f'the tokens of {tokens_of}'}")
    for dtype, row in of_kind(rows, "fused").items():
        lines.append(f"- fused layers in {dtype}: {row.get('error') or row.get('absent') or same_tokens(row)}")
    for heads, row in of_kind(rows, "bent").items():
        lines.append(f"- prompts, heads of {heads}: {row.get('error') or row.get('fallback') or differences(row)}")
    for kind, row in of_kind(rows, "quantised").items():
        lines.append(f"- weights in {kind}: {row.get('error') or row.get('absent') or 'compared with generate'}")
    for device, row in of_kind(rows, "second device").items():
        lines.append(f"- {device}: {'there is none' if 'absent' in row else row.get('error', 'compared')}")
    for name, row in of_kind(rows, "run").items():
        equal = f"{row.get('equal')} of {row.get('records')} records are the CPU's"
        lines.append(f"- a whole run of {name}: {row.get('error') or equal}")
    classes = of_kind(rows, "class")
    compared = [row for row in classes.values() if "logits" in row]
    if classes:
        recorded = sum(bool(row.get("graph_steps")) for row in compared)
        lines.append(
            f"- {len(compared)} of {len(classes)} classes of causal language models compared, {recorded} of them by a "
            f"graph, too; the others are refused or have no tiny model; logits differ by at most "
            f"{max((row['logits'] for row in compared), default=0):.1e}"
        )
    for n, row in of_kind(rows, "length").items():
        lines.append(f"- {n} tokens: {row.get('error') or differences(row)}")
    return lines


def tokens_alone(row: dict) -> str:
    if "equal" not in row:  # results of before
        return "no other tokens than alone before the first close call"
    return f"{row['equal']} of {row['settings']} settings give the tokens of each alone, the others up to a close call"


def same_tokens(row: dict) -> str:
    equal = [name for name, steps in row.items() if steps["tokens"] == steps["eager_tokens"]]
    return f"{len(equal)} of {len(row)} settings give the tokens of steps in Python ({', '.join(row)})"


def differences(row: dict) -> str:
    return ", ".join(f"{name} {x['difference']:.1e}" for name, x in row.items() if isinstance(x, dict))


def key_values(row: dict) -> str:
    return ", ".join(f"{key} {value}" for key, value in row.items())


def presets(rows: dict) -> list[str]:
    lines = ["| preset | kept sets | prompts | attention differs by | tokens |"]
    lines += ["| :-- | :-- | --: | --: | :-- |"]
    for name, row in rows.items():
        if "error" in row:
            lines.append(f"| {name} | {row['error']} | | | |")
            continue
        kept, tokens = ("equal" if row[key] else "DIFFERENT" for key in ("kept_equal", "tokens_equal"))
        lines.append(f"| {name} | {kept} | {row['prompts']} | {row['outputs']:.1e} | {tokens} |")
    return lines


def speed(length: dict) -> list[str]:
    lines = [length["error"], ""] if "error" in length else []
    if "prefill_seconds" not in length:
        return lines
    lines += [f"Prefill {length['prefill_seconds']:.2f} s, chunks of {length['chunk']}.", ""]
    lines += [f"| setting | {' | '.join(COLUMNS)} |", f"| :-- |{' --: |' * len(COLUMNS)}"]
    full = length["settings"].get("full", {}).get("decode_tokens_per_s")
    rows = dict(length["settings"])
    if "h2o" in length.get("column_sums", {}):
        rows["h2o"] = length["column_sums"]["h2o"]
    for name, row in rows.items():
        if "error" in row:
            lines.append(f"| {name} | {row['error']} |{' |' * (len(COLUMNS) - 1)}")
            continue
        rate = row["decode_tokens_per_s"]
        share = f"{row['compress_seconds'] / length['prefill_seconds']:.1%}"
        over = f"{rate / full:.2f}" if full else ""
        compiled = length.get("fused", {}).get(name, {})
        graph, fused = (per_second(x) for x in (row.get("graph_tokens_per_s"), compiled.get("fused_tokens_per_s")))
        lines.append(
            f"| {name} | {row['compress_seconds']:.3f} | {share} | {rate:.1f} | {over} | {graph} | {fused} | "
            f"{row['wall_ms_per_token']:.2f} | {milliseconds(row['kernel_ms_per_token'])} | "
            f"{row['cache_bytes'] / 2**20:.0f} | {row['largest_batch_counted']} |"
        )
    lines.append("")
    for key in ("generate", "batch", "column_sums"):
        if key in length:
            lines.append(f"- {key}: {key_values({k: v for k, v in length[key].items() if k != 'h2o'})}")
    return lines


def per_second(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def goals(lengths: list[dict]) -> list[tuple[str, str, str]]:
    """Name, what is asked, and what was found at each length that has it."""
    measured: dict[str, list[str]] = {"spindle": [], "codebook": [], "sums": [], "batch": []}
    for length in lengths:
        at, settings = f"{length.get('n')}: ", length.get("settings", {})
        spindle, full = settings.get("spindle", {}), settings.get("full", {})
        if "decode_tokens_per_s" in spindle and "decode_tokens_per_s" in full:
            measured["spindle"].append(f"{at}{by_default(spindle) / by_default(full):.2f}")
            measured["codebook"].append(f"{at}{spindle['compress_seconds'] / length['prefill_seconds']:.1%}")
        if "over_plain" in length.get("column_sums", {}):
            measured["sums"].append(f"{at}{length['column_sums']['over_plain']:.2f}")
        if length.get("batch", {}).get("times_faster"):
            measured["batch"].append(f"{at}{length['batch']['times_faster']:.1f}")
    return [
        ("SpindleKV's decoding over FullKV's", "≥ 1.0 at 32k", "; ".join(measured["spindle"])),
        ("SpindleKV's compression over prefill", "≤ 5 %", "; ".join(measured["codebook"])),
        ("prefill with H2O's sums over prefill", "≤ 1.5", "; ".join(measured["sums"])),
        ("12 settings as a batch over one by one", "≥ 8", "; ".join(measured["batch"])),
    ]


def by_default(row: dict) -> float:
    """Tokens per second by `decode.engine=auto`: a graph's where the steps could be recorded."""
    rate: float = row.get("graph_tokens_per_s") or row["decode_tokens_per_s"]
    return rate


def write(result: dict, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "README.md"
    path.write_text(markdown(result), encoding="utf-8")
    return path
