#pragma once

namespace tern::ops {
class WeightFormat;
}

namespace tern::cuda {

// A format whose weights are codes (codes/) by its name: wint8, wint4-64, ...; null for other names.
const ops::WeightFormat* find_code_format(const char* name);

}  // namespace tern::cuda
