"""The version of each file of metrics (see kvbench.utils.versions); `Benchmark.scored_by` names the files."""

VERSIONS = {
    # 5: a model's thinking was scored as its answer; 4: a letter in emphasis before a mark, or in a LaTeX box, was no
    # choice, and the s of "answer's" was one; 3: a letter in quotes, asterisks or East Asian marks was no choice; 2: a
    # text in a script without blanks was one word; 1: articles and pronouns were letters of choices
    "answers": 6,
    "babilong": 1,
    "infinitebench": 1,
    "instructions": 2,  # 1: a word in underscores was another word
    "kvpress": 1,
    "longbench": 1,
    "longbench_v2": 1,
    "math_answers": 1,  # and math_equality, whose answers are those of Math-Verify
    "math_numbers": 2,  # AIME's answers; 1: the integers that math_answers had
    "needle": 2,  # 1: a comma between two numbers made one number of them
    "nolima": 1,
    "repoqa": 1,
    "ruler": 1,
    "scbench": 1,
}
