// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace sluice {

// Brings work to the thread of one event loop. Any thread may post; the loop runs tasks in the
// order of arrival. However many are posted before it does, the loop is woken once.
class Mailbox {
 public:
  class Task {
   public:
    virtual ~Task() = default;
    virtual void Run() = 0;

   private:
    friend class Mailbox;
    Task* next_ = nullptr;
  };

  // `wake` is called on the posting thread, and makes the loop call Run soon.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}
  ~Mailbox() { Drop(); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // From any thread. Allocates nothing.
  void Post(std::unique_ptr<Task> task) {
    Task* const last = task.release();
    Task* before = last_.load(std::memory_order_relaxed);
    do {
      last->next_ = before;
    } while (!last_.compare_exchange_weak(before, last, std::memory_order_release,
                                          std::memory_order_relaxed));
    if (before == nullptr) wake_();
  }

  template <std::invocable Function>
  void Post(Function function) {
    Post(std::make_unique<FunctionTask<Function>>(std::move(function)));
  }

  // Called on the loop. Tasks posted meanwhile wait for the next call.
  void Run() {
    for (Task* task = Take(); task != nullptr;) {
      const std::unique_ptr<Task> current(std::exchange(task, task->next_));
      current->Run();
    }
  }

  // Destroys the waiting tasks without running them.
  void Drop() {
    for (Task* task = Take(); task != nullptr;) {
      const std::unique_ptr<Task> current(std::exchange(task, task->next_));
    }
  }

  // The mailbox of the loop that runs on this thread; null if there is none.
  static Mailbox* Here() { return here; }

  // Sets the mailbox of this thread.
  class Home {
   public:
    explicit Home(Mailbox& mailbox) { here = &mailbox; }
    ~Home() { here = nullptr; }
    Home(const Home&) = delete;
    Home& operator=(const Home&) = delete;
  };

 private:
  template <typename Function>
  struct FunctionTask final : Task {
    explicit FunctionTask(Function own) : function(std::move(own)) {}
    void Run() override { function(); }
    Function function;
  };

  // Takes all waiting tasks, oldest first.
  Task* Take() {
    Task* last = last_.exchange(nullptr, std::memory_order_acquire);
    Task* first = nullptr;
    while (last != nullptr) {
      Task* const before = std::exchange(last->next_, first);
      first = std::exchange(last, before);
    }
    return first;
  }

  static inline constinit thread_local Mailbox* here = nullptr;

  const std::function<void()> wake_;
  std::atomic<Task*> last_ = nullptr;  // Each points to the one before it.
};

}  // namespace sluice
