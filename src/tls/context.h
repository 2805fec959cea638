// What connections of one kind have in common: certificates, and which protocols are spoken.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tern::tls {

enum class ClientCertificates { kNone, kOptional, kRequired };

// PEM texts with the names of their files, for messages.
struct ServerPems {
  std::string certificate_name, certificate;  // the chain, the server's own first
  std::string key_name, key;
  std::string client_ca_name, client_ca;  // who signs the certificates of clients; of use unless kNone
  ClientCertificates clients = ClientCertificates::kNone;
};

// Immutable; sessions keep it alive.
class Context {
 public:
  // TLS 1.2 and 1.3 with forward secrecy and authenticated ciphers; no compression, no renegotiation. Errors: one line
  // that names the file (no certificate, no key, an encrypted key, a key of another certificate, a weak one), and
  // OpenSSL that is not there. `warning` gets a line about a certificate that is not valid now, or stays as it is.
  static Expected<std::shared_ptr<const Context>> server(const ServerPems& pems, std::string& warning);
  // Checks the server's certificate and name. `ca_file`: whom to trust; "": as OpenSSL was built.
  static Expected<std::shared_ptr<const Context>> client(const std::string& ca_file);

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ssl_ctx_st* get() const { return context_; }
  // What a server's was made from, for libraries that speak TLS themselves.
  const ServerPems& pems() const { return pems_; }

 private:
  Context(ssl_ctx_st* context, ServerPems pems) : context_(context), pems_(std::move(pems)) {}
  ssl_ctx_st* const context_;
  const ServerPems pems_;
};

}  // namespace tern::tls
