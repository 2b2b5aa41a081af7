"""ThinK: keys without the channels that queries use least."""
