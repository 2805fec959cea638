from tern.sampling_params import GuidedDecodingParams, SamplingParams

__all__ = ["GuidedDecodingParams", "SamplingParams"]
