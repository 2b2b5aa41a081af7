"""Other engines that answer kvbench's prompts: over HTTP, or as a worker process in an environment of their own."""

from kvbench.engines.base import Completion, Engine, Question, Session
from kvbench.engines.llama_cpp import LlamaCpp
from kvbench.engines.openai import OpenAI

__all__ = ["Completion", "Engine", "LlamaCpp", "OpenAI", "Question", "Session"]
