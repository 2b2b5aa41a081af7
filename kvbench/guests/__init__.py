"""Programs of others that work with kvbench. What they need is installed only by who asks for them."""
