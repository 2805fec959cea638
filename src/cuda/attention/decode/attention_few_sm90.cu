// Which shape of attention_few_hopper.cuh a head size takes.
#include <algorithm>
#include <string_view>

#include "cuda/attention/decode/attention_few_free.cuh"
#include "cuda/attention/decode/attention_few_steady.cuh"
#include "cuda/ptx/cluster_count.cuh"
#include "cuda/ptx/tensor_map.h"

namespace tern::cuda {
namespace {

// f.operator()<S>() with as many tiles under way as two blocks of a multiprocessor have room for, one of wide heads.
template <class F>
auto with_shape(const AttentionArgs& a, F&& f) {
  if (a.dk == 64)
    return a.few_wide ? f.template operator()<DecodeShape<64, 2, 12, 2>>()
                      : f.template operator()<DecodeShape<64, 1, 12, 2>>();
  if (a.dk == 128)
    return a.few_wide ? f.template operator()<DecodeShape<128, 2, 6, 2>>()
                      : f.template operator()<DecodeShape<128, 1, 6, 2>>();
  return a.few_wide ? f.template operator()<DecodeShape<256, 2, 6, 1>>()
                    : f.template operator()<DecodeShape<256, 1, 6, 1>>();
}

// The same for a team of a.few_team blocks, which needs room for what is sent. Of the largest teams three blocks of a
// multiprocessor run at once, so that there are more of them, unless there are few. Beside two blocks of a team of four
// one of the product behind them finds room, which has its weights when they end: their share of a context is short.
template <class F>
auto with_team_shape(const AttentionArgs& a, F&& f) {
  const bool three = a.few_team == kMostTeam && !a.few_deep, four = a.few_team == 4;
  if (a.dk == 64 && a.few_wide) return f.template operator()<DecodeShape<64, 2, 10, 2>>();
  if (a.dk == 64)
    return three ? f.template operator()<DecodeShape<64, 1, 8, 3>>()
                 : f.template operator()<DecodeShape<64, 1, 12, 2>>();
  if (a.dk == 128 && a.few_wide) return f.template operator()<DecodeShape<128, 2, 5, 2>>();
  if (a.dk == 128)
    return three  ? f.template operator()<DecodeShape<128, 1, 4, 3>>()
           : four ? f.template operator()<DecodeShape<128, 1, 4, 2>>()
                  : f.template operator()<DecodeShape<128, 1, 6, 2>>();
  return a.few_wide ? f.template operator()<DecodeShape<256, 2, 6, 1>>()
                    : f.template operator()<DecodeShape<256, 1, 6, 1>>();
}

// The same for a team that keeps to the order of ranges: room for its nodes.
template <class F>
auto with_fixed_shape(const AttentionArgs& a, F&& f) {
  if (a.dk == 64)
    return a.few_wide ? f.template operator()<DecodeShape<64, 2, 10, 2>>()
                      : f.template operator()<DecodeShape<64, 1, 12, 2>>();
  if (a.dk == 128)
    return a.few_wide ? f.template operator()<DecodeShape<128, 2, 5, 2>>()
                      : f.template operator()<DecodeShape<128, 1, 6, 2>>();
  return a.few_wide ? f.template operator()<DecodeShape<256, 2, 5, 1>>()
                    : f.template operator()<DecodeShape<256, 1, 6, 1>>();
}

template <class S>
Status run(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const auto blocks = static_cast<unsigned>(a.few_ranges);
  if (a.few_fixed) return launch(stream, name, {blocks, S::kThreads, S::kBytes}, decode_kernel<S>, a, maps);
  using F = FreeShared<S>;
  return launch(stream, name, {blocks, F::kThreads, F::kBytes}, decode_free_kernel<S>, a, maps);
}

template <class S>
Status run_team(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const Shape shape{static_cast<unsigned>(a.few_ranges * a.few_team), S::kThreads, TeamShape<S>::kBytes,
                    static_cast<unsigned>(a.few_team)};
  return launch(stream, name, shape, decode_team_kernel<S>, a, maps);
}

template <class S>
Status run_fixed(const AttentionArgs& a, const DecodeMaps& maps, const char* name, device::Stream stream) {
  const Shape shape{static_cast<unsigned>(a.few_ranges), S::kThreads, FixedShape<S>::kBytes,
                    static_cast<unsigned>(a.few_team)};
  return launch(stream, name, shape, decode_fixed_kernel<S>, a, maps);
}

// How many teams of 1 << bits blocks run at once; asked for once per GPU.
template <class S, bool kFixed>
int teams_at_once(int bits, device::Stream stream) {
  constexpr auto kKernel = [] {  // no kernel is compiled that nothing launches
    if constexpr (kFixed) {
      return decode_fixed_kernel<S>;
    } else {
      return decode_team_kernel<S>;
    }
  }();
  constexpr size_t kBytes = kFixed ? FixedShape<S>::kBytes : TeamShape<S>::kBytes;
  static ClusterCount counts[4];
  return counts[bits].of("attention_plan", kKernel, {dim3(1), S::kThreads, kBytes, 1u << bits}, S::kBlocks, stream);
}

// Blocks of a launch, of which a multiprocessor has room for `each`. In a lane: one, and the rest is for the others.
int most_blocks(int each, device::Stream stream) {
  return (state(stream).lane ? 1 : each) * state(stream).multiprocessors;
}

// The largest teams of which there are as many as units, or none.
void choose_teams(AttentionArgs& a, int64_t units, device::Stream stream) {
  for (int bits = 3; bits > 0; --bits) {
    a.few_team = 1 << bits, a.few_deep = a.few_team == kMostTeam && units << bits <= state(stream).multiprocessors;
    a.few_ranges = with_team_shape(a, [&]<class S>() {
      return std::min(teams_at_once<S, false>(bits, stream), most_blocks(S::kBlocks, stream) >> bits);
    });
    if (units <= a.few_ranges) return;
  }
  a.few_team = 0;
}

// The same in deterministic mode, for decoding rows; their blocks can have ranges, too.
void choose_fixed_teams(AttentionArgs& a, int64_t units, device::Stream stream) {
  with_fixed_shape(a, [&]<class S>() {
    for (int bits = 3; bits > 0; --bits) {
      const int teams = teams_at_once<S, true>(bits, stream);
      if (units > teams || teams << bits > kFewRanges) continue;
      a.few_team = 1 << bits, a.few_nodes = kFixedNodes, a.few_ranges = teams << bits;
      a.few_capacity = static_cast<int>(kSplitBytes / (int64_t{sizeof(float)} * S::kNode) / a.few_ranges) - 3;
      return;
    }
  });
}

}  // namespace

bool decode_fits(const AttentionArgs& a, device::Stream stream) {
  return state(stream).arch >= 90 && state(stream).smem_limit >= 224 * 1024 && a.cache != nullptr &&
         a.context_len != nullptr && !a.latent && !a.kv_f32 && a.dk == a.dv &&
         (a.dk == 64 || a.dk == 128 || a.dk == 256) && a.block_size % kFewTile == 0;
}

AttentionArgs decode_units(AttentionArgs a, int max_query_len, device::Stream stream) {
  const int group = a.few_group = a.heads / a.kv_heads;
  a.few_chunks = (group + 15) / 16;
  a.few_heads = (group + a.few_chunks - 1) / a.few_chunks;
  a.few_wide = a.few_heads > 8 || max_query_len > 8 / a.few_heads;
  a.few_tokens = (a.few_wide ? 16 : 8) / a.few_heads;
  a.few_all = state(stream).deterministic || max_query_len <= a.few_tokens;
  a.few_fixed = state(stream).deterministic;
  const int64_t units = int64_t{a.rows} * a.kv_heads * a.few_chunks;
  if (!a.few_fixed) {
    choose_teams(a, units, stream);
  } else if (max_query_len <= a.few_tokens) {
    choose_fixed_teams(a, units, stream);
  }
  if (a.few_team > 0) return a;
  with_shape(a, [&]<class S>() {
    const int blocks = most_blocks(S::kBlocks, stream);
    a.few_ranges = blocks < kFewRanges ? blocks : kFewRanges;
    a.few_capacity = static_cast<int>(kSplitBytes / (int64_t{sizeof(float)} * S::kNode) / a.few_ranges) - 3;
  });
  return a;
}

Status attention_decode(const AttentionArgs& args, device::Stream stream) {
  AttentionArgs a = args;
  const bool behind =
      a.prepare.qkv != nullptr || std::string_view(state(stream).last_kernel).starts_with("qkv_prepare");
  a.few_early = a.planned && state(stream).pdl && behind;
  DecodeMaps maps;
  const int64_t rows = int64_t{2} * a.kv_heads * a.block_size;
  TERN_RETURN_IF_ERROR(tensor_map_pages(a.cache, a.dk, rows, a.block_stride, kFewTile, &maps.whole));
  TERN_RETURN_IF_ERROR(tensor_map_pages(a.cache, a.dk, rows, a.block_stride, kFewBox, &maps.last));
  const auto named = [&](const char* of64, const char* of128, const char* of256) {
    return a.dk == 64 ? of64 : a.dk == 128 ? of128 : of256;
  };
  if (a.few_nodes > 0) {
    const char* name = named("attention_fixed_64_sm90", "attention_fixed_128_sm90", "attention_fixed_256_sm90");
    return with_fixed_shape(a, [&]<class S>() { return run_fixed<S>(a, maps, name, stream); });
  }
  if (a.few_team > 0) {
    const char* name = named("attention_team_64_sm90", "attention_team_128_sm90", "attention_team_256_sm90");
    return with_team_shape(a, [&]<class S>() { return run_team<S>(a, maps, name, stream); });
  }
  const char* name = named("attention_few_64_sm90", "attention_few_128_sm90", "attention_few_256_sm90");
  return with_shape(a, [&]<class S>() { return run<S>(a, maps, name, stream); });
}

}  // namespace tern::cuda
