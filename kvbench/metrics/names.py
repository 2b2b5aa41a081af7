"""Names of scores, known without importing what computes them: a misspelt one need not wait for torch."""

# Metrics of prompts of one's own, by name (kvbench.metrics.answers has the functions).
ANSWERS = ("contains", "exact", "f1", "rouge_l", "choice")

# Scores in the records of each benchmark, by its class.
OF_BENCHMARK = {
    "BABILong": ("score",),
    "InfiniteBench": ("score",),
    "Instructions": ("followed",),
    "KVPressLongBench": ("score",),
    "KVPressNeedle": ("rouge1",),
    "KVPressRuler": ("score",),
    "KamradtNeedle": ("rouge1", "recall"),
    "LongBench": ("score", "rouge_score_l"),
    "LongBenchE": ("score", "rouge_score_l"),
    "LongBenchV2": ("score", "compensated"),
    "MathProblems": ("correct", "boxed"),
    "NeedleInAHaystack": ("digits", "exact", "rouge1"),
    "NeedleToComplete": ("digits", "exact", "rouge1"),
    "NeedlesAtOnce": ("found", "digits", "exact"),
    "NeedlesOneByOne": ("digits", "exact"),
    "NoLiMa": ("score",),
    "OwnPrompts": ("score",),
    "PassKey": ("exact", "digits"),
    "PyramidKVNeedle": ("rouge1",),
    "Ruler": ("score",),
    "SCBench": ("official", "mended"),
    "Speed": (),
    "Text": (),
}

# Agreement with FullKV, of which more is better; every benchmark of answers can measure it.
AGREEMENT = ("top1", "agreed")
