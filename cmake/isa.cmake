# Files named *_ISA.cc are compiled for that instruction set; here and in src/cuda, whose tests compile the CPU side too.
set(TERN_ISAS avx2 avx512 avx512bf16 avx512vbmi)
set(TERN_ISA_avx2 -mavx2 -mfma -mf16c)
# gcc 12's AVX-512 headers warn about their own deliberately undefined registers.
set(TERN_ISA_avx512 -Wno-uninitialized -Wno-maybe-uninitialized -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512)
set(TERN_ISA_avx512bf16 ${TERN_ISA_avx512} -mavx512bf16)
set(TERN_ISA_avx512vbmi ${TERN_ISA_avx512bf16} -mavx512vbmi)

# tern_isa_options(SOURCE...): the options of those of the sources that are named for an instruction set.
function(tern_isa_options)
  foreach(isa ${TERN_ISAS})
    set(files ${ARGN})
    list(FILTER files INCLUDE REGEX "_${isa}\\.cc$")
    if(files)
      set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS "${TERN_ISA_${isa}}")
    endif()
  endforeach()
endfunction()
