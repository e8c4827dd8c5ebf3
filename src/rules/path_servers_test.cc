// SPDX-License-Identifier: Apache-2.0
// No spelling of a path escapes its rules: whatever a server takes a request target to mean, the
// rule for that path applies, and counts it like the plain spelling. The servers are modelled here
// one by one, each independently, from what they document and do; none shares code with what is
// tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "rules/parse.h"
#include "rules/rule_set.h"

namespace sluice::rules {
namespace {

using Names = std::vector<std::string>;

// The segments of the path that a server serves, or nothing if it refuses the request. Empty
// segments are left out: rules do not distinguish them.
using Served = std::optional<Names>;

// ---- Building blocks of servers.

std::string Until(const std::string& text, std::string_view ends) {
  return text.substr(0, text.find_first_of(ends));
}

bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// `except`: bytes that stay encoded.
std::string Unescape(const std::string& text, std::string_view except = "") {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        std::isxdigit(static_cast<unsigned char>(text[i + 1])) != 0 &&
                        std::isxdigit(static_cast<unsigned char>(text[i + 2])) != 0;
    const char byte =
        escape ? static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16)) : text[i];
    if (escape && except.find(byte) != std::string_view::npos) {
      out += text[i];
      continue;
    }
    out += byte;
    if (escape) i += 2;
  }
  return out;
}

Names Pieces(const std::string& text) {
  Names pieces(1);
  for (const char c : text) {
    if (c == '/') {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

std::string Joined(const Names& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += "/" + piece;
  return text.empty() ? "/" : text;
}

Names WithoutEmpty(Names pieces) {
  std::erase(pieces, "");
  return pieces;
}

std::string Backslashed(std::string text) {
  std::ranges::replace(text, '\\', '/');
  return text;
}

// `pieces` may include empty ones, which `..` then counts as segments. Nothing if it leaves the
// root.
Served Resolved(const Names& pieces, bool clamp = true) {
  Names kept;
  for (const std::string& piece : pieces) {
    if (piece == "..") {
      if (kept.empty() && !clamp) return std::nullopt;
      if (!kept.empty()) kept.pop_back();
    } else if (piece != ".") {
      kept.push_back(piece);
    }
  }
  return kept;
}

// After the slash that a path starts with.
Names Below(const std::string& path) { return Pieces(path.substr(path.starts_with('/') ? 1 : 0)); }

std::string WithoutParameters(const std::string& path) {
  Names pieces = Below(path);
  for (std::string& piece : pieces) piece = Until(piece, ";");
  return Joined(pieces);
}

// Origin form, or absolute form without its authority. Nothing for anything else.
std::optional<std::string> PathOfTarget(const std::string& target, std::string_view ends) {
  std::string path = target;
  if (!path.starts_with('/')) {
    const std::string start = Lower(target.substr(0, 7));
    if (start != "http://") return std::nullopt;
    const auto end = target.find_first_of("/?#", 7);
    path = end == std::string::npos ? "/" : target.substr(end);
  }
  path = Until(path, ends);
  return path.empty() ? "/" : path;
}

// ---- The servers.

Served Nginx(const std::string& target, bool merge) {
  const auto path = PathOfTarget(target, "?#");
  if (!path || Has(Lower(*path), "%00") || path->find('\0') != std::string::npos) return {};
  Names pieces = Below(Unescape(*path));
  if (merge) pieces = WithoutEmpty(pieces);
  const auto served = Resolved(pieces, false);
  return served ? Served(WithoutEmpty(*served)) : std::nullopt;
}
Served NginxMerging(const std::string& target) { return Nginx(target, true); }
Served NginxNotMerging(const std::string& target) { return Nginx(target, false); }

enum class Slashes : std::uint8_t { kRefused, kDecoded, kKept };

Served Apache(const std::string& target, Slashes slashes) {
  const auto path = PathOfTarget(target, "?#");
  if (!path || Has(Lower(*path), "%00")) return {};
  if (slashes == Slashes::kRefused && Has(Lower(*path), "%2f")) return {};
  const std::string decoded = Unescape(*path, slashes == Slashes::kKept ? "/" : "");
  auto served = Resolved(WithoutEmpty(Below(decoded)), false);
  if (!served) return {};
  // How an application decodes the slashes that were left to it.
  for (std::string& piece : *served) piece = slashes == Slashes::kKept ? Unescape(piece) : piece;
  return served;
}
Served ApacheRefusing(const std::string& target) { return Apache(target, Slashes::kRefused); }
Served ApacheDecoding(const std::string& target) { return Apache(target, Slashes::kDecoded); }
Served ApacheKeeping(const std::string& target) { return Apache(target, Slashes::kKept); }
Served ApacheOnWindows(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path || Has(Lower(*path), "%00")) return {};
  return Resolved(WithoutEmpty(Below(Backslashed(Unescape(*path)))), false);
}

Served Tomcat(const std::string& target, bool backslashes) {
  const auto path = PathOfTarget(target, "?");
  if (!path || Has(*path, "#")) return {};
  std::string decoded = Unescape(WithoutParameters(*path));
  if (decoded.find('\0') != std::string::npos) return {};
  if (!backslashes && Has(decoded, "\\")) return {};
  return Resolved(WithoutEmpty(Below(Backslashed(decoded))), false);
}
Served TomcatStrict(const std::string& target) { return Tomcat(target, false); }
Served TomcatLenient(const std::string& target) { return Tomcat(target, true); }

// Up to version 8, parameters extended to the end.
Served OldJetty(const std::string& target) {
  const auto path = PathOfTarget(target, ";?#");
  if (!path) return {};
  const auto served = Resolved(Below(Unescape(*path)), false);
  return served ? Served(WithoutEmpty(*served)) : std::nullopt;
}
Served Jetty(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  const auto served = Resolved(Below(Unescape(WithoutParameters(*path))), false);
  return served ? Served(WithoutEmpty(*served)) : std::nullopt;
}
// With UrlPathHelper: it reads the request's own URI, whatever the container resolved.
Served Spring(const std::string& target) {
  const auto path = PathOfTarget(target, "?");
  if (!path) return {};
  return WithoutEmpty(Below(Unescape(WithoutParameters(*path))));
}
// With PathPattern: each segment is decoded on its own, then its parameters are removed.
Served SpringPathPattern(const std::string& target) {
  const auto path = PathOfTarget(target, "?");
  if (!path) return {};
  Names pieces = WithoutEmpty(Below(*path));
  for (std::string& piece : pieces) piece = Unescape(Until(piece, ";"));
  return WithoutEmpty(pieces);
}
// Undertow decodes, and treats an encoded semicolon as one.
Served Undertow(const std::string& target) {
  const auto path = PathOfTarget(target, "?");
  if (!path) return {};
  const auto served = Resolved(WithoutEmpty(Below(WithoutParameters(Unescape(*path)))));
  return served ? Served(WithoutEmpty(*served)) : std::nullopt;
}

Served Express(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  Names pieces = Below(*path);
  if (!pieces.empty() && pieces.back().empty()) pieces.pop_back();
  if (std::ranges::find(pieces, "") != pieces.end()) return {};
  for (std::string& piece : pieces) piece = Unescape(piece);
  return pieces;
}

// new URL(request.url, "http://host"), and a router that decodes segments.
Served NodeUrl(const std::string& target) {
  std::string rest = Backslashed(Until(target, "?#"));
  const std::string start = Lower(rest.substr(0, 5));
  const bool absolute = start == "http:";
  if (absolute) rest = rest.substr(5);
  const auto slashes = std::min(rest.find_first_not_of('/'), rest.size());
  if (slashes >= 2) {
    rest = rest.substr(slashes);
    rest = rest.substr(std::min(rest.find('/'), rest.size()));
  } else if (!absolute && !rest.starts_with('/') && Has(rest, ":")) {
    return {};
  }
  Names pieces = Below(rest);
  for (std::string& piece : pieces) {
    std::string dots;
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const bool dot = Lower(piece.substr(i, 3)) == "%2e";
      dots += dot ? '.' : piece[i];
      if (dot) i += 2;
    }
    if (dots == "." || dots == "..") piece = dots;
  }
  auto served = Resolved(pieces);
  for (std::string& piece : *served) piece = Unescape(piece);
  return WithoutEmpty(*served);
}

// net/http also accepts `scheme:/path`, and treats `#` as a plain character.
std::optional<std::string> GoPath(const std::string& target) {
  if (target.starts_with('/')) return Until(target, "?");
  const auto colon = target.find(':');
  if (colon == std::string::npos || colon == 0 || colon > target.find_first_of("/?#")) return {};
  std::string rest = Until(target.substr(colon + 1), "?");
  if (rest.starts_with("//")) rest = rest.substr(std::min(rest.find('/', 2), rest.size()));
  return rest.starts_with('/') ? rest : "/";
}
bool IsValidForGo(const std::string& path) {
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '%' && Unescape(path.substr(i, 3)).size() != 1) return false;
  }
  return true;
}
// A router such as chi or gin: the decoded path, unchanged.
Served GoRouter(const std::string& target) {
  const auto path = GoPath(target);
  if (!path || !IsValidForGo(*path)) return {};
  return WithoutEmpty(Below(Unescape(*path)));
}
// Its own ServeMux: clean paths only, segments decoded one by one.
Served GoServeMux(const std::string& target) {
  const auto path = GoPath(target);
  if (!path || !IsValidForGo(*path)) return {};
  Names pieces = Below(*path);
  if (!pieces.empty() && pieces.back().empty()) pieces.pop_back();
  for (const std::string& piece : pieces) {
    if (piece.empty() || piece == "." || piece == "..") return {};
  }
  for (std::string& piece : pieces) piece = Unescape(piece);
  return pieces;
}
Served Caddy(const std::string& target) {
  const auto path = GoPath(target);
  if (!path || !IsValidForGo(*path)) return {};
  return Resolved(WithoutEmpty(Below(Unescape(*path))));
}
// Cleans the path as it was sent and leaves the decoding to the service behind it.
Served Traefik(const std::string& target) {
  const auto path = GoPath(target);
  if (!path || !IsValidForGo(*path)) return {};
  auto served = Resolved(WithoutEmpty(Below(*path)));
  for (std::string& piece : *served) piece = Unescape(piece);
  return served;
}

// normalize_path, merge_slashes and UNESCAPE_AND_FORWARD; then a service that decodes.
Served Envoy(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  std::string others;
  for (int c = 0; c < 256; ++c) {
    if (c != '/' && c != '\\' && c != '.') others += static_cast<char>(c);
  }
  const std::string text = Backslashed(Unescape(*path, others));
  auto served = Resolved(WithoutEmpty(Below(text)), false);
  if (!served) return {};
  for (std::string& piece : *served) piece = Unescape(piece);
  return served;
}

std::string UnescapeUnicode(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string digits = text.substr(std::min(i + 2, text.size()), 4);
    const bool escape = Lower(text.substr(i, 2)) == "%u" && digits.size() == 4 &&
                        digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos &&
                        std::stoi(digits, nullptr, 16) < 0x80;
    out += escape ? static_cast<char>(std::stoi(digits, nullptr, 16)) : text[i];
    if (escape) i += 5;
  }
  return out;
}
std::string Overlong(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const bool two = (lead == 0xC0 || lead == 0xC1) && i + 1 < text.size() &&
                     (static_cast<unsigned char>(text[i + 1]) & 0xC0U) == 0x80;
    out += two ? static_cast<char>((lead & 0x1FU) << 6U |
                                   (static_cast<unsigned char>(text[i + 1]) & 0x3FU))
               : text[i];
    if (two) ++i;
  }
  return out;
}
// Windows files: dots and spaces at the end of a name do not count.
Names WindowsNames(Names pieces) {
  for (std::string& piece : pieces) {
    if (piece == "." || piece == "..") continue;
    piece = piece.substr(0, piece.find_last_not_of(". ") + 1);
  }
  return WithoutEmpty(pieces);
}
Served Iis(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  const auto served = Resolved(WithoutEmpty(Below(Backslashed(UnescapeUnicode(Unescape(*path))))));
  return WindowsNames(*served);
}
Served OldIis(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  const std::string once = Overlong(Unescape(*path));
  return Resolved(WithoutEmpty(Below(Backslashed(Unescape(once)))));
}
// ASP.NET finds the session in the first segment of the form `(S(x))`.
Served AspNet(const std::string& target) {
  auto served = Iis(target);
  if (!served) return {};
  const auto session = std::ranges::find_if(*served, [](const std::string& piece) {
    return piece.starts_with("(S(") && piece.ends_with("))");
  });
  if (session != served->end()) served->erase(session);
  return served;
}
Served AspNetCore(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  // Kestrel keeps encoded slashes; routing then decodes what it captures.
  auto served = Resolved(WithoutEmpty(Below(Unescape(*path, "/"))));
  for (std::string& piece : *served) piece = Unescape(piece);
  return served;
}

Served PythonWsgi(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  return WithoutEmpty(Below(Unescape(*path)));
}
// Bytes that are not UTF-8 are ignored.
Served Bottle(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  const std::string decoded = Unescape(*path);
  std::string kept;
  for (std::size_t i = 0; i < decoded.size();) {
    const auto byte = [&](std::size_t at) {
      return at < decoded.size() ? static_cast<unsigned char>(decoded[at]) : 0;
    };
    // Spellings here have no characters of more than two bytes.
    const bool two = byte(i) >= 0xC2 && byte(i) < 0xE0 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xC0;
    const std::size_t size = two ? 2 : 1;
    if (two || byte(i) < 0x80) kept += decoded.substr(i, size);
    i += size;
  }
  return WithoutEmpty(Below(kept));
}
// `$` matches before a line feed at the end.
Served RegularExpression(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  std::string decoded = Unescape(*path);
  if (decoded.ends_with('\n')) decoded.pop_back();
  return WithoutEmpty(Below(decoded));
}
// urllib.parse.urlparse removes parameters from the last segment, and reads an authority after two
// slashes. Tabs and line breaks are ignored.
Served PythonUrlparse(const std::string& target) {
  std::string rest = Until(target, "?#");
  std::erase_if(rest, [](char c) { return c == '\t' || c == '\r' || c == '\n'; });
  const auto colon = rest.find(':');
  if (colon != std::string::npos && colon < rest.find('/')) rest = rest.substr(colon + 1);
  if (rest.starts_with("//")) rest = rest.substr(std::min(rest.find('/', 2), rest.size()));
  Names pieces = Below(rest);
  if (!pieces.empty()) pieces.back() = Until(pieces.back(), ";");
  return WithoutEmpty(Below(Unescape(Joined(pieces))));
}
Served PhpRouter(const std::string& target) {
  const auto path = PathOfTarget(target, "?");
  if (!path) return {};
  return WithoutEmpty(Below(Unescape(*path)));
}
// Before 5.3.4, a name ended at the first NUL.
Served OldPhp(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  const std::string decoded = Unescape(*path);
  return Resolved(WithoutEmpty(Below(decoded.substr(0, decoded.find('\0')))));
}
Served Rack(const std::string& target) {
  const auto path = PathOfTarget(target, "?#");
  if (!path) return {};
  Names pieces = WithoutEmpty(Below(*path));
  for (std::string& piece : pieces) piece = Unescape(piece);
  return pieces;
}

using Server = Served (*)(const std::string& target);

const std::map<std::string, Server>& Servers() {
  static const std::map<std::string, Server> servers = {
      {"nginx", NginxMerging},
      {"nginx, merge_slashes off", NginxNotMerging},
      {"Apache, AllowEncodedSlashes Off", ApacheRefusing},
      {"Apache, AllowEncodedSlashes On", ApacheDecoding},
      {"Apache, AllowEncodedSlashes NoDecode", ApacheKeeping},
      {"Apache on Windows", ApacheOnWindows},
      {"Tomcat", TomcatStrict},
      {"Tomcat, ALLOW_BACKSLASH", TomcatLenient},
      {"Jetty 8", OldJetty},
      {"Jetty", Jetty},
      {"Spring, UrlPathHelper", Spring},
      {"Spring, PathPattern", SpringPathPattern},
      {"Undertow", Undertow},
      {"Express", Express},
      {"Node, new URL()", NodeUrl},
      {"Go, chi or gin", GoRouter},
      {"Go, ServeMux", GoServeMux},
      {"Caddy", Caddy},
      {"Traefik", Traefik},
      {"Envoy", Envoy},
      {"IIS", Iis},
      {"IIS 5", OldIis},
      {"ASP.NET", AspNet},
      {"ASP.NET Core", AspNetCore},
      {"Python, WSGI", PythonWsgi},
      {"Bottle", Bottle},
      {"nginx, location ~ ^/…$", RegularExpression},
      {"Python, urlparse", PythonUrlparse},
      {"PHP router", PhpRouter},
      {"PHP 5.2", OldPhp},
      {"Rack", Rack},
  };
  return servers;
}

// Proxies that pass on the path as they understood it, such as nginx with `proxy_pass
// http://app$uri`.
const std::map<std::string, Server>& Rewriters() {
  static const std::map<std::string, Server> rewriters = {
      {"nginx", NginxMerging},    {"nginx, merge_slashes off", NginxNotMerging},
      {"Apache", ApacheDecoding}, {"Envoy", Envoy},
      {"Caddy", Caddy},           {"IIS", Iis},
      {"Tomcat", TomcatStrict},
  };
  return rewriters;
}

// ---- Spellings.

class Speller {
 public:
  explicit Speller(std::uint64_t seed) : random_(seed) {}

  std::string Spell(std::string path) {
    for (std::size_t changes = Below(5); changes > 0; --changes) Change(path);
    if (Below(10) == 0)
      path = Pick({"//h", "///h", "http://h", "HTTP://u@h:1", "http:", "/\\h"}) + path;
    if (Below(20) == 0) path += Pick({"?x", "?/../x", "#x"});
    return path;
  }

 private:
  std::size_t Below(std::size_t count) { return random_() % count; }

  std::string Pick(const Names& from) { return from[Below(from.size())]; }

  std::string Escaped(char c) {
    constexpr std::string_view kLower = "0123456789abcdef";
    constexpr std::string_view kUpper = "0123456789ABCDEF";
    const std::string_view digits = Below(2) == 0 ? kLower : kUpper;
    const auto byte = static_cast<unsigned char>(c);
    return {'%', digits[byte / 16], digits[byte % 16]};
  }

  void Change(std::string& path) {
    const std::size_t at = Below(path.size() + 1);
    switch (Below(4)) {
      case 0:  // Another way to write one character.
        if (at == path.size() || at == 0) return;
        path.replace(at, 1,
                     path[at] == '/' ? Pick({"%2F", "%2f", "\\", "%5C", "%252F", "//", "/./",
                                             "%u002f", "%c0%af"})
                                     : Escaped(path[at]));
        return;
      case 1: {  // Something at the end of a segment.
        std::size_t end = path.find('/', at);
        if (end == std::string::npos) end = path.size();
        path.insert(end,
                    Pick({";x",     ";x=1%2Fb", ";%5C",  ";a/..",       "%3Bx", "%3B%2F",   "/.",
                          "/..",    "/x/..",    "/..;/", "%2F..",       "//..", "/%2e%2E/", ".",
                          "%20",    "%00",      "%00/z", "%3Fq",        "%23f", "#f",       ";a;b",
                          "\\..\\", "/x%2F..",  "%5C..", "%252e%252e/", "/.;x/"}));
        return;
      }
      case 2: {  // Something at the beginning of a segment.
        const std::size_t slash = path.rfind('/', at);
        path.insert(slash == std::string::npos ? 0 : slash + 1,
                    Pick({"./", "x/../", "x;y/../", ".%2F", "x%2F..%2F", "/", "%2e/", ";x/",
                          "x\\..\\", "x/%2e%2e;/", "..;/x/", "(S(x))/", "(S(y)%29/"}));
        return;
      }
      default:  // Anything anywhere.
        path.insert(at,
                    Pick({"%25",   ";",   "/",   "%2F",  "%5C", "\\",  ".",      "..",     "%2E",
                          "%00",   "#",   "%23", "%3B",  "%20", "%",   "%u002e", "%C0%AE", "%252F",
                          "%253B", "%FF", "%C3", "\x80", "%0A", "%09", "\t"}));
    }
  }

  std::mt19937_64 random_;
};

// ---- The property.

constexpr std::string_view kRules = R"(
id: api
rules:
  - {id: login, scope: GLOBAL, match: {paths: [/v1/login]}, bands: [{limit: 1, window: 1d}]}
  - {id: item, scope: CUSTOM, attribute: path.item, match: {paths: ["/v1/items/{item}"]},
     bands: [{limit: 1, window: 1d}]}
  - {id: below, scope: CUSTOM, attribute: path.item, match: {paths: ["/v1/items/{item}/**"]},
     bands: [{limit: 1, window: 1d}]}
  - {id: all, scope: GLOBAL, match: {paths: [/**]}, bands: [{limit: 1, window: 1d}]}
)";

// What counts a path, according to the reference, given the path itself: "rule key".
std::set<std::string> Expected(const Names& served) {
  std::set<std::string> expected = {"all global"};
  if (served == Names{"v1", "login"}) expected.insert("login global");
  if (served.size() < 3 || served[0] != "v1" || served[1] != "items") return expected;
  std::string item = served[2];
  if (const auto end = item.find(';'); end != 0) item = item.substr(0, end);
  if (served.size() == 3) expected.insert("item path.item:" + item);
  expected.insert("below path.item:" + item);
  return expected;
}

class PathServers : public ::testing::Test {
 protected:
  // What counts the target; nothing if it is refused.
  std::optional<std::set<std::string>> Counted(const std::string& target) {
    if (!rules_->Select({.path = target}, 1, selection_)) return std::nullopt;
    std::set<std::string> counted;
    for (const Selected& each : selection_.rules()) {
      counted.insert(text::Cat(each.rule->id, " ", each.key));
    }
    return counted;
  }

  // What the server serves must be counted as that.
  void Check(const std::string& server, const std::string& target, const Served& served,
             const std::set<std::string>& counted) {
    if (!served) return;
    for (const std::string& wanted : Expected(*served)) {
      if (!wanted.starts_with("all ")) ++hits_[server];
      EXPECT_TRUE(counted.contains(wanted))
          << server << " takes " << ::testing::PrintToString(target) << " for "
          << ::testing::PrintToString(*served) << ", which counts for " << wanted
          << " but not here: " << ::testing::PrintToString(counted);
    }
  }

  const std::shared_ptr<const RuleSet> rules_ = ParseRuleSet(kRules, "rules").value();
  Selection selection_;
  std::map<std::string, int> hits_;
};

TEST_F(PathServers, NoneServesASpellingThatEscapesTheRulesOfItsPath) {
  const char* const given = std::getenv("SLUICE_TEST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "SLUICE_TEST_SEED=" << seed << '\n';
  Speller speller(seed);
  constexpr int kSpellings = 20'000;
  int refused = 0;
  for (int i = 0; i < kSpellings && !HasFailure(); ++i) {
    const std::string target = speller.Spell(i % 3 == 0   ? "/v1/login"
                                             : i % 3 == 1 ? "/v1/items/a"
                                                          : "/v1/items/a/b");
    const auto counted = Counted(target);
    if (!counted) {
      ++refused;
      continue;
    }
    for (const auto& [name, serve] : Servers()) Check(name, target, serve(target), *counted);
    for (const auto& [proxy, rewrite] : Rewriters()) {
      const auto passed_on = rewrite(target);
      if (!passed_on) continue;
      for (const auto& [name, serve] : Servers()) {
        Check(proxy + " before " + name, target, serve(Joined(*passed_on)), *counted);
      }
    }
  }
  // Hardly anything is refused, and every server was exercised.
  EXPECT_LT(refused, kSpellings / 20);
  std::cout << refused << " of " << kSpellings << " refused\n";
  EXPECT_EQ(hits_.size(), Servers().size() * (Rewriters().size() + 1));
  for (const auto& [server, hits] : hits_) EXPECT_GT(hits, kSpellings / 40) << server;
}

}  // namespace
}  // namespace sluice::rules
