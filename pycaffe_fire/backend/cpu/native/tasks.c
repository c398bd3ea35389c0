/* The task launcher: libgomp's team of threads where Python names it, else a small pool.
 *
 * oneDNN computes on libgomp's team. Two teams would compete for the cores, because the threads of
 * both spin for a while after they have finished.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "fire.h"

enum order { FORWARD, BACKWARD, IN_TURNS };

struct job {
    int64_t count;
    task_fn *task;
    const void *args;
    enum order order;
    _Atomic int64_t next; /* IN_TURNS: the first task that nobody has taken */
};

/* Run share `share` of `shares` of a job. */
static void run_share(struct job *j, int64_t share, int64_t shares) {
    if (j->order == IN_TURNS) {
        int64_t i;
        while ((i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->count)
            j->task(i, j->args);
        return;
    }
    int64_t first = j->count * share / shares, stop = j->count * (share + 1) / shares;
    if (j->order == FORWARD)
        for (int64_t i = first; i < stop; i++) j->task(i, j->args);
    else
        for (int64_t i = stop - 1; i >= first; i--) j->task(i, j->args);
}

/* Locks and threads of the system ------------------------------------------------------------- */

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
typedef SRWLOCK lock_type;
typedef CONDITION_VARIABLE signal_type;
#define LOCK_INIT SRWLOCK_INIT
#define SIGNAL_INIT CONDITION_VARIABLE_INIT
#define acquire(lock) AcquireSRWLockExclusive(lock)
#define give_back(lock) ReleaseSRWLockExclusive(lock)
#define sleep_until(signal, lock) SleepConditionVariableSRW(signal, lock, INFINITE, 0)
#define wake_all(signal) WakeAllConditionVariable(signal)
#define THREAD_RESULT DWORD WINAPI
static bool start_thread(LPTHREAD_START_ROUTINE function, void *argument) {
    HANDLE thread = CreateThread(NULL, 0, function, argument, 0, NULL);
    return thread != NULL && CloseHandle(thread);
}
#else
#include <pthread.h>
#include <signal.h>
typedef pthread_mutex_t lock_type;
typedef pthread_cond_t signal_type;
#define LOCK_INIT PTHREAD_MUTEX_INITIALIZER
#define SIGNAL_INIT PTHREAD_COND_INITIALIZER
#define acquire(lock) pthread_mutex_lock(lock)
#define give_back(lock) pthread_mutex_unlock(lock)
#define sleep_until(signal, lock) pthread_cond_wait(signal, lock)
#define wake_all(signal) pthread_cond_broadcast(signal)
#define THREAD_RESULT void *
static bool start_thread(void *(*function)(void *), void *argument) {
    pthread_t thread;
    sigset_t all, before; /* signals are for the threads of the program */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, NULL, function, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started && pthread_detach(thread) == 0;
}
#endif

/* The pool: one job at a time. Waiting threads spin for some 50 us, then sleep. ------------------ */

enum { SPINS = 2000 };

static struct pool {
    atomic_flag taken; /* a job runs */
    lock_type lock;    /* of all that follows */
    signal_type begun, ended;
    _Atomic int64_t jobs;    /* how many have begun */
    _Atomic int64_t pending; /* workers that have not ended their share */
    int64_t workers, sleepers;
    struct job *job;
    int64_t shares;
} pool = {ATOMIC_FLAG_INIT, LOCK_INIT, SIGNAL_INIT, SIGNAL_INIT, 0, 0, 0, 0, NULL, 0};

INLINE void relax(void) {
#if defined(__SSE__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static THREAD_RESULT work(void *argument) {
    int64_t share = (int64_t)(intptr_t)argument, seen = 0;
    for (;;) {
        for (int i = 0; i < SPINS && pool.jobs == seen; i++) relax();
        acquire(&pool.lock);
        pool.sleepers++;
        while (pool.jobs == seen) sleep_until(&pool.begun, &pool.lock);
        pool.sleepers--;
        seen = pool.jobs;
        struct job *job = share < pool.shares ? pool.job : NULL;
        int64_t shares = pool.shares;
        give_back(&pool.lock);
        if (job == NULL) continue;
        run_share(job, share, shares);
        acquire(&pool.lock);
        if (--pool.pending == 0) wake_all(&pool.ended);
        give_back(&pool.lock);
    }
    return 0;
}

static void run_on_pool(struct job *j, int64_t threads) {
    acquire(&pool.lock);
    /* A new worker has seen no job: it takes its share of this one. */
    while (pool.workers < threads - 1 && start_thread(work, (void *)(intptr_t)(pool.workers + 1)))
        pool.workers++;
    int64_t shares = least(threads, pool.workers + 1);
    pool.job = j;
    pool.shares = shares;
    pool.pending = shares - 1;
    pool.jobs++;
    if (pool.sleepers > 0) wake_all(&pool.begun);
    give_back(&pool.lock);
    run_share(j, 0, shares);
    for (int i = 0; i < SPINS && pool.pending > 0; i++) relax();
    acquire(&pool.lock);
    while (pool.pending > 0) sleep_until(&pool.ended, &pool.lock);
    pool.shares = 0;
    give_back(&pool.lock);
}

/* libgomp's team ------------------------------------------------------------------------------- */

typedef void parallel_fn(void (*)(void *), void *, unsigned, unsigned);
typedef int number_fn(void);

static parallel_fn *gomp_parallel;
static number_fn *gomp_thread, *gomp_threads;

static void run_gomp_share(void *job) { run_share(job, gomp_thread(), gomp_threads()); }

/* Run tasks on libgomp's team from now on; the arguments are its functions GOMP_parallel,
 * omp_get_thread_num and omp_get_num_threads. */
EXPORT void fire_use_team(parallel_fn *parallel, number_fn *thread, number_fn *threads);
void fire_use_team(parallel_fn *parallel, number_fn *thread, number_fn *threads) {
    gomp_thread = thread;
    gomp_threads = threads;
    gomp_parallel = parallel;
}

#ifndef _WIN32
/* A forked process has none of its parent's threads, and libgomp would wait for them. */
static void after_fork(void) {
    gomp_parallel = NULL;
    pool = (struct pool){ATOMIC_FLAG_INIT, LOCK_INIT, SIGNAL_INIT, SIGNAL_INIT, 0, 0, 0, 0, NULL, 0};
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, after_fork);
}
#endif

/* ----------------------------------------------------------------------------------------------- */

static void launch(int64_t count, task_fn *task, const void *args, int64_t threads, enum order order) {
    struct job j = {count, task, args, order, 0};
    threads = least(threads, count);
    if (threads <= 1) {
        run_share(&j, 0, 1);
    } else if (gomp_parallel) {
        gomp_parallel(run_gomp_share, &j, (unsigned)threads, 0);
    } else if (!atomic_flag_test_and_set(&pool.taken)) {
        run_on_pool(&j, threads);
        atomic_flag_clear(&pool.taken);
    } else { /* another thread's tasks keep the pool busy */
        run_share(&j, 0, 1);
    }
}

void run_tasks(int64_t count, task_fn *task, const void *args, int64_t threads) {
    launch(count, task, args, threads, FORWARD);
}

void run_tasks_backward(int64_t count, task_fn *task, const void *args, int64_t threads) {
    launch(count, task, args, threads, BACKWARD);
}

void run_tasks_in_turns(int64_t count, task_fn *task, const void *args, int64_t threads) {
    launch(count, task, args, threads, IN_TURNS);
}

/* Memory ---------------------------------------------------------------------------------------- */

/* The address that malloc gave is stored right before the memory. */
void *allocate(int64_t bytes) {
    char *start = malloc((size_t)bytes + LINE + sizeof(void *));
    if (start == NULL) {
        fprintf(stderr, "pycaffe_fire: a kernel found no memory for %lld bytes\n", (long long)bytes);
        abort();
    }
    char *memory = start + sizeof(void *);
    memory += (LINE - (uintptr_t)memory % LINE) % LINE;
    memcpy(memory - sizeof(void *), &start, sizeof(void *));
    return memory;
}

void release(void *memory) {
    void *start;
    memcpy(&start, (char *)memory - sizeof(void *), sizeof(void *));
    free(start);
}

void stream_copy(float *target, const float *source, int64_t count) {
    int64_t head = least(count, (int64_t)(-(uintptr_t)target % LINE / sizeof *target));
    int64_t lines = (count - head) / 16 * 16, done = head + lines;
    if (head) memcpy(target, source, (size_t)head * sizeof *target);
    stream_floats(target + head, source + head, lines);
    if (done < count) memcpy(target + done, source + done, (size_t)(count - done) * sizeof *target);
}
