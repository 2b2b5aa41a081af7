"""Scripts of a checkout, a folder for each kind; they are no part of the installed package."""
