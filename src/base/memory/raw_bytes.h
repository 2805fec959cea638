// Bytes that are written before they are read: a large array of them is not cleared first, which would touch every
// fresh page of it once more, and all by one thread. Large arrays are of huge pages (pages.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/memory/pages.h"

namespace tern {

// Elements that are given no value are left as the memory is.
template <class T>
class RawAllocator : public std::allocator<T> {
 public:
  template <class U>
  struct rebind {
    using other = RawAllocator<U>;
  };
  using std::allocator<T>::allocator;

  T* allocate(size_t n) {
    if (n > SIZE_MAX / sizeof(T)) throw std::bad_array_new_length();
    void* memory = take_pages(n * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* p, size_t n) { give_pages(p, n * sizeof(T)); }

  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    if constexpr (sizeof...(Args) == 0) {
      ::new (static_cast<void*>(p)) U;
    } else {
      ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
    }
  }
};

using RawBytes = std::vector<std::byte, RawAllocator<std::byte>>;

}  // namespace tern
