// Bytes that are written before they are read: a large array of them is not cleared first, which would touch every
// fresh page of it once more, and all by one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

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
