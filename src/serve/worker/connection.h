// One client connection: its bytes in both directions and where its current request stands.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "serve/http/request.h"
#include "serve/http/response.h"
#include "serve/limits/admission.h"
#include "serve/limits/memory_budget.h"
#include "serve/net/fd.h"
#include "serve/net/peer.h"
#include "serve/router.h"

namespace tern::serve {

struct Connection {
  enum class Phase : uint8_t {
    kReading,  // a request is awaited or being read
    kWorking,  // a request is being answered
    kClosing,  // what is in `out` goes out, then the connection ends
    kLinger    // our side is shut; the client's last bytes are read and dropped
  };

  Connection(uint64_t number, net::Fd socket, PortKind kind, net::Peer from, const http::ParserLimits& limits)
      : id(number), fd(std::move(socket)), port(kind), peer(from), parser(limits) {}

  const uint64_t id;
  net::Fd fd;
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
  uint64_t exchange = 0;
  const Route* route = nullptr;
  std::string rest;            // of the path, for a route that takes one
  std::string answer_headers;  // lines that go with every answer: the request's id, CORS
  http::Method method = http::Method::kOther;
  int minor_version = 1;
  bool keep_alive = true, served_before = false;
  int key_index = 0;
  uint64_t owner = 0;          // of the request: its key where there are several, else its address
  MemoryBudget::Lease memory;  // of its body
  int64_t begin_ns = 0;
  uint64_t active = 0;                           // key of its generation
  std::shared_ptr<std::atomic<bool>> cancelled;  // tells the preparation of its media to stop
  bool streaming = false;
  size_t chunk_at = npos;  // where the open HTTP chunk starts in `out`

  std::list<uint64_t>::iterator idle_place;
  bool idle_listed = false;

  static constexpr size_t npos = static_cast<size_t>(-1);

  size_t unsent() const { return out.size() - sent; }
  std::string_view input() const { return std::string_view(in).substr(in_begin); }
  void drop_input(size_t n);
  // Gives the memory of empty buffers back, where they have more than `keep` bytes each.
  void trim(size_t keep);

  // Event bytes of a stream are appended to this; one HTTP chunk holds all of them until close_chunk().
  std::string& stream_out();
  void close_chunk();
  void end_stream();  // the last chunk
};

}  // namespace tern::serve
