"""Other engines that answer kvbench's prompts: over HTTP, or as a worker process in an environment of their own."""

from kvbench.engines.base import Completion, Engine, Question, Session
from kvbench.engines.llama_cpp import LlamaCpp
from kvbench.engines.openai import OpenAI
from kvbench.engines.openvino import OpenVINO
from kvbench.engines.vllm import VLLM

__all__ = ["VLLM", "Completion", "Engine", "LlamaCpp", "OpenAI", "OpenVINO", "Question", "Session"]
