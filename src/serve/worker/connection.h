// One client connection: its bytes in both directions and where its current request stands.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "serve/core/reader.h"
#include "serve/http/request.h"
#include "serve/limits/admission.h"
#include "serve/limits/memory_budget.h"
#include "serve/net/peer.h"
#include "serve/net/stream.h"
#include "serve/router.h"

namespace tern::serve {

class Connections;

struct Connection final : Reader {
  enum class Phase : uint8_t {
    kReading,  // a request is awaited or being read
    kWorking,  // a request is being answered
    kClosing,  // what is in `out` goes out, then the connection ends
    kLinger    // our side is shut; the client's last bytes are read and dropped
  };

  Connection(uint64_t number, Connections* whose, std::unique_ptr<net::Stream> bytes, PortKind kind, net::Peer from,
             const http::ParserLimits& limits)
      : Reader(number), home(whose), stream(std::move(bytes)), port(kind), peer(from), parser(limits) {}

  Connections* const home;
  const std::unique_ptr<net::Stream> stream;
  const PortKind port;
  const net::Peer peer;
  AddressCounts::Lease place;
  http::RequestParser parser;
  Phase phase = Phase::kReading;
  uint32_t events = 0;        // what epoll watches
  bool touched = false;       // in the list of connections to flush
  bool gone = false;          // to be destroyed at the end of the turn
  bool unread_input = false;  // the client may still be sending a body that is not read
  bool input_ended = false;   // the client has closed its side

  std::string in;  // bytes not parsed yet
  size_t in_begin = 0;
  std::string out;  // bytes not sent yet
  size_t sent = 0;
  int64_t deadline_ns = 0;       // of the phase; 0: none
  int64_t body_deadline_ns = 0;  // of the whole body
  int64_t probe_ns = 0;          // after input_ended: when to look again whether the client reads
  int64_t stalled_since_ns = 0;  // since when the client takes no bytes; 0: nothing waits

  // The current request.
  const Route* route = nullptr;
  std::string rest;            // of the path, for a route that takes one
  std::string answer_headers;  // lines that go with every answer: the request's id, CORS
  http::Method method = http::Method::kOther;
  int minor_version = 1;
  bool keep_alive = true, served_before = false;
  MemoryBudget::Lease memory;  // of its body
  int64_t begin_ns = 0;
  std::shared_ptr<std::atomic<bool>> cancelled;  // tells the preparation of its media to stop
  size_t chunk_at = npos;                        // where the open HTTP chunk starts in `out`

  std::list<uint64_t>::iterator idle_place;
  bool idle_listed = false;

  static constexpr size_t npos = static_cast<size_t>(-1);

  size_t unsent() const { return out.size() - sent; }
  std::string_view input() const { return std::string_view(in).substr(in_begin); }
  void drop_input(size_t n);
  // Gives the memory of empty buffers back, where they have more than `keep` bytes each.
  void trim(size_t keep);

  bool congested() const override;
  void begin_stream() override;
  std::string& stream_out() override;  // one HTTP chunk holds all that is appended until close_chunk()
  void touch() override;
  void end_stream() override;
  void respond(http::Response response) override;
  void drop() override;

  void close_chunk();
  void close_stream();  // the last chunk
};

}  // namespace tern::serve
