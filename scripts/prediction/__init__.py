"""The parts of scripts/predict_gpu.py."""
