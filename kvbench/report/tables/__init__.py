"""Tables: of a run, by task, of a paper, of speed; as Markdown, LaTeX, CSV and for the terminal."""
