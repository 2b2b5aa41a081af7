"""Servers under load: GuideLLM measures in an environment of its own, and its reports become records."""
