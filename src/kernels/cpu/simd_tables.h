// The parts of fill_avx2, fill_avx512 and fill_avx512bf16 that live in files of their own.
#pragma once

namespace tern::kernels {

struct KernelTable;
void fill_rows_avx2(KernelTable* table);
void fill_rows_avx512(KernelTable* table);
void fill_rows_avx512bf16(KernelTable* table);
void fill_codes_avx2(KernelTable* table);
void fill_codes_avx512(KernelTable* table);
void fill_codes_avx512vbmi(KernelTable* table);

}  // namespace tern::kernels
