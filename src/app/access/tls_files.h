// The files of --ssl-certfile and its like.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/flags/flag_set.h"
#include "base/error.h"
#include "tls/context.h"

namespace tern::app {

struct TlsFiles {
  std::string certificate;                                           // --ssl-certfile; "": no TLS
  std::string key;                                                   // --ssl-keyfile; "": in the certificate's file
  std::string client_ca;                                             // --ssl-ca-certs
  tls::ClientCertificates clients = tls::ClientCertificates::kNone;  // --ssl-cert-reqs

  bool wanted() const { return !certificate.empty(); }
  // kInvalidArgument for flags of which one says nothing without another.
  static Expected<TlsFiles> from(const FlagSet& flags);
  // What the files hold now. Errors: one line with the file. `warnings` takes lines about the mode of the key's file
  // and a certificate that is not valid now.
  Expected<std::shared_ptr<const tls::Context>> load(std::vector<std::string>& warnings) const;
  Expected<tls::ServerPems> read(std::vector<std::string>& warnings) const;
};

}  // namespace tern::app
