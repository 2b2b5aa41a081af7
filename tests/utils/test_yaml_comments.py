"""The comments of a YAML file of settings."""

from kvbench.utils.yaml_comments import commented

TEXT = """\
# about the file
defaults:
  - _self_
  - model: small # a name
  # not about the next line's key, which has a blank
  - override hydra/job_logging: none

# above, and not of the blank line

ratio: null # a share, 'x # y'
bare: 1
node:
  # in two
  # lines
  inner: [1, 2]
  other: a#b # beside
# above
last: {a: 1}
"""


def test_a_comment_belongs_to_its_line_or_the_line_below():
    assert commented(TEXT) == {
        "model": ("small", "a name"),
        "ratio": ("null", "a share, 'x # y'"),
        "node.inner": ("[1, 2]", "in two lines"),
        "node.other": ("a#b", "beside"),
        "last": ("{a: 1}", "above"),
    }
