"""An M/M/1 queue in simpy; prints requests per CPU second."""

import random
import time

import simpy

REQUESTS = 200_000


def customer(env: simpy.Environment, server: simpy.Resource, rng: random.Random):
    with server.request() as slot:
        yield slot
        yield env.timeout(rng.expovariate(1.0))


def source(env: simpy.Environment, server: simpy.Resource, rng: random.Random):
    for _ in range(REQUESTS):
        yield env.timeout(rng.expovariate(0.8))
        env.process(customer(env, server, rng))


env = simpy.Environment()
stream = random.Random(1)
env.process(source(env, simpy.Resource(env, 1), stream))
begin = time.process_time()
env.run()
print(REQUESTS / (time.process_time() - begin))
