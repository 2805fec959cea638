// 32 letters a step. A letter's class follows from its two nibbles: `lo` and `hi` share a bit exactly when the letter
// is not of the alphabet, and the high nibble (with '/' set apart) names what to add to it to get its value.
#include <immintrin.h>

#include "fetch/base64.h"

namespace tern::fetch::internal {

size_t decode_groups_avx2(const uint8_t* text, size_t size, uint8_t* out) {
  const __m256i lo_table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0x15, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x13, 0x1A, 0x1B, 0x1B, 0x1B, 0x1A));
  const __m256i hi_table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0x10, 0x10, 0x01, 0x02, 0x04, 0x08, 0x04, 0x08, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10));
  const __m256i shift_table =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 16, 19, 4, -65, -65, -71, -71, 0, 0, 0, 0, 0, 0, 0, 0));
  const __m256i slash = _mm256_set1_epi8(0x2F);
  const __m256i pack =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1));
  const __m256i join = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
  size_t i = 0;
  // Each step writes 32 bytes of which 24 count; the caller's buffer has them as long as 44 letters are left.
  for (; i + 44 <= size; i += 32, out += 24) {
    const __m256i letters = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + i));
    const __m256i hi = _mm256_and_si256(_mm256_srli_epi32(letters, 4), slash);
    const __m256i lo = _mm256_and_si256(letters, slash);
    if (!_mm256_testz_si256(_mm256_shuffle_epi8(lo_table, lo), _mm256_shuffle_epi8(hi_table, hi))) break;
    const __m256i which = _mm256_add_epi8(_mm256_cmpeq_epi8(letters, slash), hi);
    const __m256i values = _mm256_add_epi8(letters, _mm256_shuffle_epi8(shift_table, which));
    const __m256i pairs = _mm256_maddubs_epi16(values, _mm256_set1_epi32(0x01400140));
    const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x00011000));
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(quads, pack), join);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
  }
  return i + decode_groups(text + i, size - i, out);
}

}  // namespace tern::fetch::internal
