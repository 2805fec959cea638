#include "cuda/attention/decode/attention_decode_codes_launch.cuh"

namespace tern::cuda {

template struct DecodeOfCodes<KvCode::kE4m3>;

}  // namespace tern::cuda
