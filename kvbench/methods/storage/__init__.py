"""Storage: how kept tokens are held. A storage of one method stands in that method's file."""
