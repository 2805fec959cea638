// The border between the server and libtern_grpc.so, which carries KServe v2 over gRPC (paddlenlp-server.md 3):
// messages as plain values, no type of gRPC or protobuf. Both sides are compiled from this file, and the library of
// another build is refused. Views last until the call that brings them returns; no exception crosses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tern::serve::kserve {

// gRPC's numbers.
enum class Code : uint8_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kNotFound = 5,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kUnauthenticated = 16
};

struct CallStatus {
  Code code = Code::kOk;
  std::string text;
  bool ok() const { return code == Code::kOk; }
};

struct Parameter {
  enum class Kind : uint8_t { kNone, kBool, kInt64, kText, kDouble, kUint64 };
  std::string_view name;
  Kind kind = Kind::kNone;
  bool flag = false;
};

struct InputTensor {
  std::string_view name, datatype;
  std::span<const int64_t> shape;
  bool has_contents = false;
  std::span<const std::string_view> contents;  // its bytes_contents
};

struct InferRequest {
  std::string_view model, version, id;
  std::span<const Parameter> parameters;
  std::span<const InputTensor> inputs;
  std::span<const std::string_view> outputs;  // names
  std::span<const std::string_view> raw;      // raw_input_contents
};

// One ModelStreamInfer. Every function may be called from any thread.
class Stream {
 public:
  // An answer with the output OUT; it is copied. `last`: nothing more comes for this call. Gives the bytes that wait to
  // be sent for the call.
  virtual size_t send(uint64_t call, std::string_view id, std::string_view out, bool last) = 0;
  // An error in the stream's own messages, and the last of its call. It ends the stream with that status where the
  // client asked for it (triton_grpc_error).
  virtual void fail(uint64_t call, std::string_view id, const CallStatus& status) = 0;
  // What waits to be sent for the call is dropped.
  virtual void forget(uint64_t call) = 0;
  // Host::on_room, once the bytes that wait for the call are `bytes` or less.
  virtual void watch(uint64_t call, size_t bytes) = 0;
  virtual size_t unsent() const = 0;  // bytes, of all calls
  virtual size_t unsent(uint64_t call) const = 0;
  // Since when the client has taken nothing although something waits for it, monotonic; 0: it does not stand still.
  virtual int64_t stalled_since_ns() const = 0;
  // No more calls: what waits is sent, then the status. Nothing of it reaches a client that does not read.
  virtual void finish(const CallStatus& status) = 0;
  virtual void cancel() = 0;        // at once
  virtual bool closed() const = 0;  // nobody reads any more
  virtual void retain() = 0;        // whoever keeps a pointer
  virtual void release() = 0;

 protected:
  ~Stream() = default;
};

// PEM texts that have been found to be good.
struct Certificates {
  std::string chain, key;  // the server's
  std::string client_ca;   // who signs those of clients; "" with ClientCertificates::kNone
};
enum class ClientCertificates : uint8_t { kNone, kOptional, kRequired };

// What the library asks of the server. Called from the library's threads.
class Host {
 public:
  // True: there are others than at the last call, or it is the first one. With Options::tls, before each handshake.
  virtual bool new_certificates(Certificates& certificates) = 0;
  virtual void on_bad_handshake() = 0;
  // The number of the key that an `authorization` value carries; below 0: none. 0 where no key is set.
  virtual int authorize(std::string_view authorization) = 0;
  virtual bool stopping() = 0;
  virtual bool ready() = 0;
  // Whether a request may name this model.
  virtual CallStatus check_model(std::string_view model, std::string_view version) = 0;
  virtual std::string_view server_version() = 0;

  // A stream begins, under a number of the library's that no other has; `peer` is its address as gRPC writes it. False:
  // it is refused, and ended with `status`. Other threads may use the stream before this returns.
  virtual bool on_stream(uint64_t number, Stream& stream, int key_index, std::string_view peer, CallStatus& status) = 0;
  // A request on it: ends with just one send(last) or fail(), which may come before this returns.
  virtual void on_request(uint64_t stream, Stream& from, const InferRequest& request) = 0;
  virtual void on_room(uint64_t stream, uint64_t call) = 0;
  virtual void on_closed(uint64_t stream) = 0;  // just once per stream that was not refused
  virtual void log(bool error, std::string_view line) = 0;

 protected:
  ~Host() = default;
};

struct Options {
  std::string host;
  int port = 0;  // 0: the system chooses
  size_t message_bytes = 64u << 20;
  size_t memory_bytes = 256u << 20;  // of messages that are being received
  size_t pause_bytes = 256u << 10;   // unsent bytes of a stream above which it is not read
  int handshake_seconds = 10;
  int idle_seconds = 3600;  // of a connection without a call
  int streams = 2048;       // open calls of one connection
  int threads = 1;          // that move messages
  bool tls = false;
  ClientCertificates clients = ClientCertificates::kNone;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int port() const = 0;
  // Ends every call and returns when nothing calls the host any more; streams that are retained stay allocated.
  virtual void stop() = 0;
};

// A number over this file's text: both sides must have the same (interface.cc, and the library's own copy).
uint64_t interface_number();

// The one function that the library exports, as kStartSymbol. Null: it cannot listen, `error` says why.
using Start = Transport* (*)(uint64_t interface, const Options& options, Host& host, std::string& error);
inline constexpr const char* kStartSymbol = "tern_grpc_start";
inline constexpr const char* kLibraryName = "libtern_grpc.so";

}  // namespace tern::serve::kserve
