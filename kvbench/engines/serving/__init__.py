"""Servers under load: GuideLLM measures in a separate environment, and its reports become records."""
