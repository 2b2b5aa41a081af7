"""Storage: how the tokens that a method keeps are held. Those of one method stand in its file."""
