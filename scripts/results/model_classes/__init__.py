"""Every causal-LM class of the installed transformers: does kvbench read with it what it reads by itself?"""
