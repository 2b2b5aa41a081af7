"""llama.cpp's own server, from the wheel of xllamacpp: python llama_server.py --model FILE --type q8_0 --port 8080

For a machine without a built llama-server, whose options these are: -m, -ctk and -ctv, -c, -np, -t, --metrics. Run by
the Python of an environment with `pip install xllamacpp`; kvbench is not imported.
"""

import argparse
import signal

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, metavar="GGUF")
    parser.add_argument("--alias", required=True, help="what clients call the model")
    parser.add_argument("--type", default="f16", help="of keys and values: f16, q8_0, q4_0; KEYS/VALUES for two")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--slots", type=int, default=8, help="requests that are read at once")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a slot")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repack", action="store_true", help="weights for this CPU: faster, and rounded as no other's")
    options = parser.parse_args()
    keys, _, values = options.type.partition("/")
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = options.model, {options.alias}
    params.port = options.port  # of 127.0.0.1
    params.cache_type_k, params.cache_type_v = (
        getattr(xllamacpp.ggml_type, f"GGML_TYPE_{kind.upper()}") for kind in (keys, values or keys)
    )
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.n_parallel, params.n_ctx = options.slots, options.slots * options.context
    params.cpuparams.n_threads = options.threads
    params.endpoint_metrics, params.no_extra_bufts = True, not options.repack
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
