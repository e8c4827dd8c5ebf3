// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

struct lua_State;

namespace sluice::simulate {

// A Redis in memory: the commands that the script uses, and the script itself, run by the Lua that
// Redis embeds. The caller gives the time. lua_redis_test.cc compares it with a real redis-server.
class LuaRedis {
 public:
  // May change a script when it is loaded: a wrong version then has the digest of the right one.
  using Edit = std::function<std::string(std::string_view script)>;

  explicit LuaRedis(Edit edit = {});
  ~LuaRedis();
  LuaRedis(const LuaRedis&) = delete;
  LuaRedis& operator=(const LuaRedis&) = delete;

  // Executes a command at this time of the server's clock. Returns the reply, in RESP.
  std::string Execute(std::span<const std::string> words, std::int64_t now_us);

  // Whether the key exists at this time of the server's clock. Removes it if it has expired.
  bool Has(const std::string& key, std::int64_t now_us);

  // The number of writes so far. RollBack undoes those after `position`, like a crash that loses
  // them.
  std::size_t position() const { return undo_.size(); }
  void RollBack(std::size_t position);

  // Keys that exist and never expire.
  std::vector<std::string> Immortals() const;

  // Moves a key to another server.
  void Move(const std::string& key, LuaRedis& to);
  std::vector<std::string> Keys() const;

  void FlushScripts();

  // Like a server that has reached its maxmemory.
  void set_full(bool full) { full_ = full; }

  // Messages that were published since the last call.
  std::vector<std::string> TakePublished() { return std::exchange(published_, {}); }

 private:
  struct SortedSet {
    std::map<std::string, double> scores;
    std::set<std::pair<double, std::string>> order;
  };
  struct Value {
    std::variant<std::string, SortedSet> data;
    std::optional<std::int64_t> expires_ms;
  };
  // A reply as Lua sees it.
  struct Nil {};
  struct Status {
    std::string text;
  };
  struct Failure {
    std::string text;
  };
  using Reply = std::variant<Nil, std::int64_t, std::string, Status, Failure,
                             std::vector<std::optional<std::string>>>;
  using Words = std::vector<std::string>;

  static int LuaCall(lua_State* lua);
  static int LuaProtectedCall(lua_State* lua);
  static int CallFromLua(lua_State* lua, bool raise);
  void PushReply(const Reply& reply);
  std::string EncodeTop() const;
  void Encode(int index, std::string& out) const;
  void PushTable(std::span<const std::string> words);
  std::string Run(std::span<const std::string> words);
  std::string LoadScript(std::string_view source);
  std::string LoadLibrary(std::string_view source);
  void Compile(std::string_view source);
  static int LuaRegister(lua_State* lua);

  Reply Command(const Words& words);
  Reply Write(const Words& words);
  std::optional<Failure> Refusal(const std::string& name) const;
  Reply SortedSetRead(const Words& words);
  Value* Find(const std::string& key);
  SortedSet* FindSet(const std::string& key, Reply& problem);
  void Remember(const std::string& key);

  const Edit edit_;
  lua_State* const lua_;
  // By digest, and functions by name: references of the functions in Lua.
  std::map<std::string, int, std::less<>> scripts_;
  std::map<std::string, Value> keys_;
  std::vector<std::pair<std::string, std::optional<Value>>> undo_;
  std::vector<std::string> published_;
  std::int64_t now_us_ = 0;
  bool full_ = false;
  bool refuses_ = false;      // Memory was full when the script began.
  bool has_written_ = false;  // By this script.
};

}  // namespace sluice::simulate
