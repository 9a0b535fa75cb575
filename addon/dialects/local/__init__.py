"""Local: wire formats of model servers: Ollama, LM Studio, llama.cpp, Text Generation Inference.

In: one parsed frame. Out: facts and usage.
Uses: dialects.
"""
