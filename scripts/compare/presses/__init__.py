"""kvpress's side of the comparisons of kept tokens. See scripts/README.md."""
