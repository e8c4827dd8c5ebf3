// SPDX-License-Identifier: Apache-2.0
#include "rules/digest.h"

#include <openssl/evp.h>

#include <array>

#include "core/hex.h"

namespace sluice::rules {

void AppendDigest(std::string& out, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr);
  for (unsigned int i = 0; i < size; ++i) text::AppendHex(out, digest[i]);
}

}  // namespace sluice::rules
