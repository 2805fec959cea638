# Compiles .cu files with the nvcc of TERN_CUDA_HOME by custom commands: no CUDA language of CMake, which would look
# for a whole toolkit. Portable files become sm_80 code (which 8.6 and 8.9 run too), compute_80 PTX, and sm_90 code, which
# alone has the waits of programmatic dependent launch; files named *_sm90.cu become sm_90a. CPU seconds per file go into
# cuda_seconds.txt of the build folder.
set(TERN_CUDA_HOME "" CACHE PATH "Folder with bin/nvcc; see tools/cuda_toolchain.sh")
# A list of -gencode values for portable files. gpu-pack sets one architecture.
set(TERN_CUDA_PORTABLE "arch=compute_80,code=[sm_80,compute_80];arch=compute_90,code=sm_90" CACHE STRING
    "nvcc -gencode of portable files")
set(TERN_CUDA_HOPPER "arch=compute_90a,code=sm_90a" CACHE STRING "nvcc -gencode of *_sm90.cu")

if(NOT EXISTS ${TERN_CUDA_HOME}/bin/nvcc)
  message(FATAL_ERROR "TERN_CUDA_HOME has no bin/nvcc: run tools/cuda_toolchain.sh and pass the folder it prints")
endif()
find_library(TERN_CUDART_STATIC cudart_static PATHS ${TERN_CUDA_HOME}/lib ${TERN_CUDA_HOME}/lib64
             ${TERN_CUDA_HOME}/targets/x86_64-linux/lib NO_DEFAULT_PATH REQUIRED)
set_property(GLOBAL PROPERTY JOB_POOLS nvcc=2)  # a file takes up to 2 GB

# What is packed with xz afterwards is smaller when it was not compressed before.
option(TERN_CUDA_COMPRESS "Compress the kernels inside the shared object" ON)
if(TERN_CUDA_COMPRESS)
  set(compress -Xfatbin=-compress-all)
endif()
set(TERN_NVCC_FLAGS -std=c++20 -O3 --expt-relaxed-constexpr -lineinfo ${compress}
    -Xcompiler=-fPIC,-fvisibility=hidden,-Wall -I${TERN_ROOT}/src -ccbin ${CMAKE_CXX_COMPILER})

# ccache knows nvcc; one file compiled anew is often minutes.
find_program(TERN_CCACHE ccache)
set(TERN_NVCC ${TERN_CUDA_HOME}/bin/nvcc)
if(TERN_CCACHE)
  set(TERN_NVCC ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${TERN_ROOT} CCACHE_NOHASHDIR=1 ${TERN_CCACHE} ${TERN_NVCC})
endif()

# Appends the objects of SOURCES to the variable `out`.
function(tern_cuda_objects out)
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.o)
    if(object IN_LIST objects)
      message(FATAL_ERROR "two files of kernels are named ${name}")
    endif()
    set(gencode "${TERN_CUDA_PORTABLE}")
    if(name MATCHES "_sm90\\.cu$")
      set(gencode "${TERN_CUDA_HOPPER}")
    endif()
    list(TRANSFORM gencode PREPEND -gencode=)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/cuda
      COMMAND ${TERN_ROOT}/tools/cuda_compile.sh ${CMAKE_BINARY_DIR}/cuda_seconds.txt ${name}
              ${TERN_NVCC} ${TERN_NVCC_FLAGS} ${gencode} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "nvcc ${name}" JOB_POOL nvcc VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
