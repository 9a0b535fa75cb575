"""Wire formats of model servers: Ollama, LM Studio, llama.cpp, Text Generation Inference."""
