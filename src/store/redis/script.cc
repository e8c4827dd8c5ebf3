// SPDX-License-Identifier: Apache-2.0
#include "store/redis/script.h"

#include <openssl/evp.h>

#include <array>

#include "base/hex.h"
#include "base/text.h"
#include "redis/resp.h"

namespace sluice::redis {
namespace {

std::string Sha1(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) text::AppendHex(hex, digest[i]);
  return hex;
}

// What is plain is decided before the rest of the script is built.
Program MakeScript() {
  Program program{.command = "EVALSHA", .name = {}, .source = {}, .load = {}};
  program.source =
      text::Cat(kSingleSource,
                "local called_keys, called_args = KEYS, ARGV\n"
                "local decided = decide_plain(KEYS, ARGV)\n"
                "if decided then return decided end\n",
                kSlotsSource,
                "decided = decide_slots(called_keys, called_args)\n"
                "if decided then return decided end\n",
                kSluiceSource, kHoldsSource, "return decide_all(called_keys, called_args)\n");
  program.name = Sha1(program.source);
  program.load = Command("SCRIPT", "LOAD", program.source);
  return program;
}

// Libraries of different versions stand side by side: names of functions are global in Redis. While
// a library is loaded it has no Lua functions and no redis.call, so its first call builds it.
Program MakeFunction() {
  Program program{.command = "FCALL", .name = {}, .source = {}, .load = {}};
  const std::string body = text::Cat(kSingleSource, kSlotsSource, kSluiceSource, kHoldsSource);
  program.name = text::Cat("sluice_", Sha1(body).substr(0, 16));
  program.source = text::Cat("#!lua name=", program.name,
                             "\n"
                             "local decide\n"
                             "local function build()\n",
                             body,
                             "return function(keys, args)\n"
                             "  return decide_plain(keys, args) or decide_slots(keys, args) or\n"
                             "         decide_all(keys, args)\n"
                             "end\n"
                             "end\n"
                             "redis.register_function('",
                             program.name,
                             "', function(keys, args)\n"
                             "  decide = decide or build()\n"
                             "  return decide(keys, args)\n"
                             "end)\n");
  program.load = Command("FUNCTION", "LOAD", program.source);
  return program;
}

}  // namespace

const Program& ProgramAs(ProgramForm form) {
  static const Program function = MakeFunction();
  static const Program script = MakeScript();
  return form == ProgramForm::kFunction ? function : script;
}

bool IsLoadedAlready(std::string_view error) { return error.contains("already exists"); }

}  // namespace sluice::redis
