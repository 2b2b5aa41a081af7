"""Keys of conf/model that are part of what identifies records, in the runs that set them."""

IDENTIFYING = ("template_args", "load_args", "stop_tokens")
