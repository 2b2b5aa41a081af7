"""The parts of scripts/results/predict_gpu.py."""
