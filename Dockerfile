# The image of the Spark services and of the job service in docker-compose.yml.
FROM eclipse-temurin:17.0.13_11-jre-jammy AS java

FROM python:3.11.11-slim-bookworm
COPY --from=java /opt/java/openjdk /opt/java/openjdk
ENV JAVA_HOME=/opt/java/openjdk PATH=/opt/java/openjdk/bin:$PATH PYSPARK_PYTHON=python
WORKDIR /app
COPY pyproject.toml requirements-image.lock README.md LICENSE ./
COPY pag_graph pag_graph
COPY cypher cypher
# Who owns the folder of traces and stores outside; Spark wants a user with a name.
ARG PAG_UID=1000
ARG PAG_GID=1000
RUN pip install --no-cache-dir --require-hashes -r requirements-image.lock && pip install --no-cache-dir --no-deps . \
    && groupadd --non-unique --gid "$PAG_GID" pag \
    && useradd --non-unique --uid "$PAG_UID" --gid "$PAG_GID" --create-home pag
# Spark's scripts lie in PySpark's package.
ENV SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark
ENV PATH=$SPARK_HOME/bin:$PATH
COPY spark_jobs /app/spark_jobs
USER pag
CMD ["pag", "--help"]
