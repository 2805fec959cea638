// A function that is handed on to be run, once or more, by its last holder. Unlike std::function it can only be moved,
// so that what it captures may be too (std::move_only_function of C++23).
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace tern {

template <class Signature>
class UniqueFunction;

template <class Result, class... Arguments>
class UniqueFunction<Result(Arguments...)> {
 public:
  UniqueFunction() = default;
  UniqueFunction(std::nullptr_t) {}
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, UniqueFunction> &&
           std::is_invocable_r_v<Result, std::decay_t<F>&, Arguments...>) UniqueFunction(F&& function)
      : work_(std::make_unique<Holder<std::decay_t<F>>>(std::forward<F>(function))) {}

  explicit operator bool() const { return work_ != nullptr; }
  Result operator()(Arguments... arguments) { return work_->call(std::forward<Arguments>(arguments)...); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual Result call(Arguments... arguments) = 0;
  };
  template <class F>
  struct Holder final : Base {
    template <class G>
    explicit Holder(G&& g) : function(std::forward<G>(g)) {}
    Result call(Arguments... arguments) override { return function(std::forward<Arguments>(arguments)...); }
    F function;
  };
  std::unique_ptr<Base> work_;
};

using Task = UniqueFunction<void()>;

}  // namespace tern
