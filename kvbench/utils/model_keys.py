"""Keys of conf/model that are part of the records' identity in runs that set them."""

IDENTIFYING = ("template_args", "load_args", "stop_tokens")
