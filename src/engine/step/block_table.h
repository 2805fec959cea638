// The block table of a step on the host and on the device: both keep what a row had, and only what is new is copied.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "device/tensor.h"
#include "model/batch.h"
#include "sample/staged.h"

namespace tern::engine {

class BlockTable {
 public:
  // What lies in a row on the host since this step last had one.
  struct Row {
    uint64_t table = 0;          // the sequence's (PlanRow::table); 0: of no use to the next turn
    int32_t used = 0, last = 0;  // entries, and the last of them
  };
  // `shares`: null, or the table of the other step, whose device side this one takes too. `of`: null, or the table
  // whose host side this one has, for a rank's device.
  static Expected<BlockTable> create(const model::BatchLimits& limits, device::Device& device, const BlockTable* shares,
                                     const BlockTable* of);

  // The engine thread.
  void begin();
  void prefetch(size_t rows) const;
  const Row& row(int r) const { return rows_[static_cast<size_t>(r)]; }
  int32_t block(int r, int entry) const { return entries_[int64_t{r} * stride_ + entry]; }
  // Brings a row up to `used` entries of `blocks`.
  void set(int r, int used, uint64_t table, std::span<const int32_t> blocks);
  // Notes what the device lacks of the row. More than there is room for is only counted: rows are then sent whole.
  void note(int r);
  void widen(int used) { columns_ = used > columns_ ? used : columns_; }  // the longest row has so many

  // The rank's thread. `rows`: of a graph's shape.
  void pad(int rows);
  void upload(int rows, sample::CopyList& list) const;  // all that is used of so many
  void upload_changes(int rows, sample::CopyList& list) const { changes_.upload(2 * room(rows), list); }
  void upload_rest(int rows, sample::CopyList& list) const;  // where the changes do not hold it
  // Sends from now on what `of` would.
  void follow(const BlockTable& of) {
    columns_ = of.columns_, change_count_ = of.change_count_;
    first_changed_ = of.first_changed_, last_changed_ = of.last_changed_;
  }
  TensorView view(int rows) const { return tensor2(entries_.device(), DType::kI32, rows, stride_); }
  TensorView changes(int rows) const { return tensor2(changes_.device(), DType::kI32, room(rows), 2); }

 private:
  // What the device's row holds after the step that was filled last: both steps know it.
  struct Sent {
    uint64_t table = 0;
    int32_t used = 0;
  };
  static constexpr int kMoreChanges = 32;  // than rows: blocks of prompts
  static int room(int rows) { return rows + kMoreChanges; }

  int stride_ = 0;   // entries of a row at most
  int columns_ = 0;  // of the longest row of this turn
  std::vector<Row> rows_;
  std::shared_ptr<std::vector<Sent>> sent_;    // null: one memory with the device
  int change_count_ = 0;                       // entries that the device lacks
  int first_changed_ = 0, last_changed_ = -1;  // rows of them
  sample::Staged<int32_t> entries_, changes_;
};

}  // namespace tern::engine
