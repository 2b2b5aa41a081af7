"""Other tools' names of kvbench's keys (kvpress, KVCache-Factory, lm-evaluation-harness), for hints in errors."""

WORDS = {
    "compression_ratio": "kvpress's share to remove; ratio= is the share to keep: compression_ratio=0.8 is ratio=0.2",
    "press_name": "method=NAME here, or press=NAME for kvpress's own code",
    "dataset": "benchmark=NAME here",
    "data_dir": "benchmark.lengths=[4096] of benchmark=ruler here, or benchmark.data_dir=FOLDER",
    "query_aware": "question=visible here; query_aware=false is question=hidden",
    "fraction": "limit=SAMPLES here",
    "kv_budget": "budget=TOKENS here, the tokens of each layer and head",
    "task": "benchmark=NAME here, and benchmark.tasks=[…]",
    "path": "benchmark=jsonl benchmark.path=FILE for prompts, model.path=FOLDER for a model",
    "tasks": "benchmark=NAME here, and benchmark.tasks=[…]",
    "max_capacity_prompt": "budget=TOKENS here, the tokens of each layer and head",
    "max_capacity_prompts": "budget=TOKENS here, the tokens of each layer and head",
    "model_name": "model=NAME here, model=org/name or model=/folder",
    "model_path": "model=/folder here, or model.path=FOLDER with a preset",
    "save_dir": "output_dir=FOLDER here",
    "num_samples": "limit=SAMPLES here",
    "max_samples": "limit=SAMPLES here",
    "window_size": "method.NAME.scoring.window=TOKENS here",
    "max_new_tokens": "benchmark.max_new_tokens=TOKENS where a benchmark has it; the official lengths otherwise",
}
