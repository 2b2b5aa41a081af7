"""Options for reading from the Hugging Face hub."""

from functools import partial
from typing import Any

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError

from kvbench.utils.deadline import within

_PATIENCE = 5.0  # seconds for the first answer
# Seconds for a model's configuration, and for its tokenizer: a hub may stop answering or send single bytes, and each
# request is repeated.
WHOLE = 180.0


def hub_options(hub_id: str, revision: str) -> dict[str, Any]:
    """Keyword arguments of `from_pretrained` for a model of the hub.

    One short request comes first; without an answer only the local cache is read. transformers requests many files and
    retries each: a hub that accepts connections and never answers would take half an hour, one behind a broken proxy a
    minute.
    """
    options = {"revision": revision}
    return options if constants.HF_HUB_OFFLINE or answers(hub_id, revision) else options | {"local_files_only": True}


def answers(hub_id: str, revision: str) -> bool:
    """Whether the hub answers a request about a model within some seconds, even if with a refusal.

    An error of a server or a proxy (status 407, 500 and above) is no answer.
    """
    try:
        api = HfApi(endpoint=constants.ENDPOINT)
        within(2 * _PATIENCE, partial(api.model_info, hub_id, revision=revision, timeout=_PATIENCE))
    except HfHubHTTPError as error:  # an unknown or gated model: for from_pretrained to report
        status = getattr(error.response, "status_code", None)
        return status is None or (status < 500 and status != 407)
    except ValueError:  # a bad name: likewise
        return True
    except Exception:  # no answer; the error depends on the client's version
        return False
    return True
